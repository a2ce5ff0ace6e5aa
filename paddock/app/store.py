"""Sessions as versioned JSON, and stores of them."""

import os
import re
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddock.app.messages import Entry, TokenUsage

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class SnapshotError(ValueError):
    """The stored text is no snapshot of this session, or not one that this version reads."""


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


class SessionStore(Protocol):
    """Keeps one text for each session."""

    async def load(self, session_id: str) -> str | None:
        """The text; None without one."""

    async def save(self, session_id: str, text: str) -> None:
        """Replaces the text, completely or not at all."""

    async def delete(self, session_id: str) -> None:
        """Removes the text; one that is absent is no error."""


class MemoryStore:
    """Keeps snapshots as long as the process lives."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    async def load(self, session_id: str) -> str | None:
        """The text; None without one."""
        return self._texts.get(session_id)

    async def save(self, session_id: str, text: str) -> None:
        """Replaces the text."""
        self._texts[session_id] = text

    async def delete(self, session_id: str) -> None:
        """Removes the text."""
        self._texts.pop(session_id, None)


class FileStore:
    """Keeps each snapshot as a file that only its user may read."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    async def load(self, session_id: str) -> str | None:
        """The text; None without one. Raises: OSError."""
        try:
            return self._path(session_id).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    async def save(self, session_id: str, text: str) -> None:
        """Replaces the file, completely or not at all. Raises: OSError."""
        self._replace(self._path(session_id), text)

    def _replace(self, path: Path, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        number, draft = tempfile.mkstemp(dir=self._folder, prefix=".draft-")
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(path)
        finally:
            Path(draft).unlink(missing_ok=True)

    async def delete(self, session_id: str) -> None:
        """Removes the file. Raises: OSError."""
        self._path(session_id).unlink(missing_ok=True)

    def _path(self, session_id: str) -> Path:
        if not _NAME.fullmatch(session_id):
            raise ValueError(f"{session_id!r} is no id of a session")
        return self._folder / f"{session_id}.json"
