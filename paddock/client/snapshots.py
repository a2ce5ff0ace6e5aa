"""Snapshots of sessions, to and from local files."""

import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, TypeAlias

from paddock.client.local_directory import draft_of, off_loop
from paddock.client.requests import given
from paddock.client.transport import Transport

# Bytes so far.
BytesProgress: TypeAlias = Callable[[int], object]

# The host packs everything before the first byte, and unpacks it after the last one.
_SILENCE_SECONDS = 1900.0
_RESTORE_SECONDS = 5400.0
_CHUNK = 1024 * 1024
_RESTORE = "/api/sessions/restore"


async def save(api: Transport, path: str, local: Path, progress: BytesProgress | None) -> int:
    """Writes the session's snapshot; returns its size. It appears completely or not at all.

    Raises: OSError.
    """
    draft = draft_of(local)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    size = 0
    async with api.open(
        "POST",
        f"{path}/snapshot",
        content_type="application/octet-stream",
        silence=_SILENCE_SECONDS,
    ) as arriving:
        try:
            # Only its owner may read it: it has all that the session could read.
            with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
                async for piece in arriving:
                    size += await off_loop(file.write, piece)
                    if progress is not None:
                        progress(size)
            draft.replace(local)
        finally:
            draft.unlink(missing_ok=True)
    return size


async def send(
    api: Transport, local: Path, id: str | None, progress: BytesProgress | None
) -> dict[str, Any]:
    """The session that the control plane has made of a snapshot. Raises: OSError."""
    await off_loop(local.stat)  # a missing file raises its own error
    body = _FileBody(local, progress)
    return await api.json(
        "POST", _RESTORE, params=given(id=id), data=body, timeout=_RESTORE_SECONDS
    )


class _FileBody:
    """A file as a body, which can be sent again."""

    def __init__(self, path: Path, progress: BytesProgress | None) -> None:
        self._path, self._progress = path, progress

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        size = 0
        with await off_loop(self._path.open, "rb") as file:
            while piece := await off_loop(file.read, _CHUNK):
                yield piece
                size += len(piece)
                if self._progress is not None:
                    self._progress(size)
