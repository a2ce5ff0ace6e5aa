"""What a restored session brings along from its snapshot."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.ground.events import now
from orchestrator.ground.store.effect import Effect, both
from orchestrator.state import session_rows
from orchestrator.state.session import Session
from paddock.contract.words import Kind


@dataclass(frozen=True, slots=True)
class Carried:
    """What a session has from the snapshot with the digest `sha256`, of the session `session_id`.

    `consumed` is in internal units. `fill` makes the session's files before its sandbox starts. The
    effect of `keep`, for the session's key, is stored when the session is acknowledged.
    """

    sha256: str
    session_id: str
    created_at: str
    episodes: int
    consumed: Mapping[Kind, int]
    fill: Callable[[Session], Awaitable[None]]
    keep: Callable[[str], Effect]

    @property
    def audit_bytes(self) -> int:
        """The bytes that were recorded of the session before."""
        return self.consumed.get(Kind.AUDIT_BYTES, 0)

    def take(self, session: Session) -> None:
        """Gives the new session what was consumed; recorded bytes count once they are stored."""
        session.last_activity_at, session.episodes = now(), self.episodes
        for kind, amount in self.consumed.items():
            if kind is not Kind.AUDIT_BYTES:
                session.budget.reach(kind, amount)

    def recorded(self) -> dict[str, Any]:
        """The members of the event of its creation."""
        return {
            "snapshot": {
                "sha256": self.sha256,
                "session_id": self.session_id,
                "created_at": self.created_at,
            }
        }

    def storing(self, session: Session) -> Effect:
        """An effect that stores what else it brings along."""
        return both(session_rows.counting(session.key, self.audit_bytes), self.keep(session.key))
