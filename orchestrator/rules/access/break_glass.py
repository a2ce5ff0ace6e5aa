"""Break-glass: which admins have opened access to sessions of other keys, and until when.

Where it is required, an admin's key touches no content of another key's session without such an
access. Accesses are in memory only: a restart ends them all.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.rules.access.keys import Principal, Role

RULE = "break-glass"


@dataclass(frozen=True, slots=True)
class GlassAccess:
    """One admin's access to one session.

    `key` is the admin's name, `until` is shown, and `deadline` counts, by a clock that nobody sets.
    """

    id: str
    session_key: str
    key: str
    reason: str
    opened_at: datetime
    until: datetime
    deadline: float


class BreakGlass:
    """Decides who may touch a session's content. Whoever opens an access records it first."""

    def __init__(self, *, required: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """`required`: admins need an access; else they may do everything."""
        self.required = required
        self._clock = clock
        # By the session's key and the admin's name.
        self._open: dict[tuple[str, str], GlassAccess] = {}

    def needed(self, principal: Principal, owner: str) -> bool:
        """Whether that caller touches the sessions of that owner by an access only."""
        return self.required and principal.role is Role.ADMIN and principal.name != owner

    def allows(self, principal: Principal, session_key: str, owner: str) -> bool:
        """Whether that caller may touch the content of a session that it may see."""
        return (
            not self.needed(principal, owner) or self.get(session_key, principal.name) is not None
        )

    def check(self, principal: Principal, session_id: str, session_key: str, owner: str) -> None:
        """Raises: PermissionDeniedError, which says how to open an access."""
        if self.allows(principal, session_key, owner):
            return
        raise PermissionDeniedError(
            f"{session_id} is a session of {owner}: open access to its content first, on record "
            f"and told to its owner, by POST /api/sessions/{session_id}/break-glass or "
            f"`paddock break-glass {session_id} --reason …`",
            rule=RULE,
        )

    def get(self, session_key: str, name: str) -> GlassAccess | None:
        """The open access of the admin with that name."""
        found = self._open.get((session_key, name))
        return None if found is None or found.deadline <= self._clock() else found

    def of_session(self, session_key: str) -> list[GlassAccess]:
        """The open accesses to a session, the oldest first."""
        names = [name for key, name in self._open if key == session_key]
        found = (self.get(session_key, name) for name in names)
        return sorted((one for one in found if one is not None), key=lambda one: one.opened_at)

    @property
    def all(self) -> list[GlassAccess]:
        """Every access that was added and not removed."""
        return list(self._open.values())

    def add(self, access: GlassAccess) -> None:
        """Opens it, instead of an earlier one of the same admin to the same session."""
        self._open[access.session_key, access.key] = access

    def remove(self, access: GlassAccess) -> bool:
        """Ends it; whether it was there still."""
        found = self._open.get((access.session_key, access.key))
        if found is not access:
            return False
        del self._open[access.session_key, access.key]
        return True
