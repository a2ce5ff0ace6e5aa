"""What a new session's workspace begins with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.ground.store.effect import Effect
from orchestrator.state.session import Session


@dataclass(frozen=True, slots=True)
class StartingFiles:
    """A snapshot from which a session begins; `session_id` and `session_key` are of its source.

    `layer`: it has a writable layer, too, as which the session's sandboxes begin.

    `claiming`, for the new session, is committed with its creation, and raises if the files can't
    be its. `place` makes them the session's before its sandbox starts.
    """

    id: str
    name: str | None
    sha256: str
    session_id: str
    session_key: str
    used_bytes: int
    layer: bool
    claiming: Callable[[Session], Effect]
    place: Callable[[Session], Awaitable[None]]

    def recorded(self) -> dict[str, Any]:
        """The members of the event of the session's creation."""
        return {
            "snapshot": {
                "id": self.id,
                **({} if self.name is None else {"name": self.name}),
                "sha256": self.sha256,
                "session_id": self.session_id,
                "session_key": self.session_key,
            }
        }
