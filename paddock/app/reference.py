"""What hooks of runners, and tools, see of a session."""

from dataclasses import dataclass
from typing import Literal, Protocol

from paddock.app.snapshot import AppSnapshot

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
    """A session's id, level, state and snapshot. `ephemeral`: nobody comes back to its files."""

    _session: _Shown
    level: str
    ephemeral: bool

    @property
    def id(self) -> str:
        """The session's id, which is also its sandbox's."""
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
