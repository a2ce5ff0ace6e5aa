"""A session as versioned JSON."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddock.app.messages import Entry, TokenUsage


class SnapshotError(ValueError):
    """What the store has is no snapshot of this session that this version reads."""


class AppSnapshot(BaseModel):
    """A session: its timeline, what waits for its next run, and what it used.

    `runner` is the runner's own state, for its `on_restore`. Files are in the sandbox's workspace.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal["1.0"] = "1.0"
    session_id: str
    tick: int = Field(ge=0)
    timeline: tuple[Entry, ...]
    queued: tuple[Entry, ...] = ()
    usage: TokenUsage = TokenUsage()
    runner: dict[str, Any] = {}
    timestamp: datetime

    def to_json(self) -> str:
        """The snapshot as JSON text."""
        return self.model_dump_json()


def read_snapshot(text: str, session_id: str) -> AppSnapshot:
    """Raises: SnapshotError."""
    try:
        found = AppSnapshot.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the text"
        raise SnapshotError(f"the snapshot of {session_id}: {field}: {first['msg']}") from None
    if found.session_id != session_id:
        raise SnapshotError(f"the snapshot of {session_id} is of {found.session_id}")
    return found
