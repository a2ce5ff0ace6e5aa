"""What hooks of runners, and tools, see of a session."""

from dataclasses import dataclass
from typing import Literal, Protocol

from paddock.app.snapshot import AppSnapshot

Workspace = Literal["own", "read-only", "shared"]
Status = Literal["idle", "running", "closed"]


class _Shown(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def status(self) -> Status: ...
    @property
    def tick(self) -> int: ...
    def snapshot(self) -> AppSnapshot: ...


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A session's id, level, state and snapshot.

    `ephemeral`: nobody comes back to its files. A child has a `parent`, perhaps a `label`, and a
    `workspace` that may be its parent's.
    """

    _session: _Shown
    level: str
    ephemeral: bool
    parent: "SessionRef | None" = None
    label: str | None = None
    workspace: Workspace = "own"

    @property
    def id(self) -> str:
        """The session's id; also its sandbox's, unless it is a child."""
        return self._session.id

    @property
    def status(self) -> Status:
        """`idle`, `running` or `closed`."""
        return self._session.status

    @property
    def current_tick(self) -> int:
        """The number of the tick that runs, or of the next one."""
        return self._session.tick + 1

    def snapshot(self) -> AppSnapshot:
        """The session as it is now."""
        return self._session.snapshot()
