"""One file of a command's evidence, written in threads and charged piece by piece."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.ground.store import directories
from orchestrator.ground.threads import Threads

T = TypeVar("T")

OUTPUT_NAME = "output"
_DRAFT_NAME = ".output"
_SECONDS = 15.0


def additional_name(directory: Path, name: str | None) -> Path | None:
    """The path of evidence's other name beside its directory; None if it has no other.

    `{session_id}` in the name is replaced by the directory's own name.
    """
    path = directory.with_name((name or directory.name).replace("{session_id}", directory.name))
    return None if path == directory else path


class EvidenceFile:
    """`<directory>/output`, for its owner only. Its calls may not overlap.

    Raises: OSError from every method, TimeoutError if the disk does not answer.
    """

    def __init__(
        self, directory: Path, name: str | None, threads: Threads, pay: Callable[[int], None]
    ) -> None:
        """`name`: see `additional_name`.

        `pay` is called with each piece's size before it is written, and with a negative size when
        pieces are removed. If it raises for a piece, `add` raises the same error.
        """
        self._directory = directory
        self._link = additional_name(directory, name)
        self._threads = threads
        self._pay = pay
        self._digest, self._size = hashlib.sha256(), 0
        self._fd = -1
        # The paths to remove on failure.
        self._made: list[Path] = []
        # The latest call of the disk, which may still be running.
        self._latest: asyncio.Future[Any] | None = None

    async def begin(self) -> None:
        """Creates the file under a temporary name."""
        await self._call(self._begin)

    async def add(self, data: bytes) -> None:
        """Appends a piece. Raises: the errors of `pay`."""
        self._pay(len(data))
        self._size += len(data)
        self._digest.update(data)
        await self._call(partial(self._write, data))

    async def finish(self) -> tuple[int, str]:
        """Makes it durable and gives it its name; returns its size and `sha256:…`."""
        await self._call(self._finish)
        return self._size, f"sha256:{self._digest.hexdigest()}"

    async def discard(self) -> None:
        """Removes it once no earlier call is running any more."""
        if self._latest is None:
            return
        await asyncio.wait([self._latest])
        await self._call(self._discard)
        self._pay(-self._size)
        self._size = 0

    async def _call(self, function: Callable[[], T]) -> T:
        async with asyncio.timeout(_SECONDS):
            outcome = await self._threads.begin(function, _SECONDS)
            self._latest = outcome
            return await asyncio.shield(outcome)

    # Run in threads.

    def _begin(self) -> None:
        directories.make(self._directory)
        self._made.append(self._directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._directory / _DRAFT_NAME, flags, 0o600)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _finish(self) -> None:
        os.fsync(self._fd)
        self._close()
        (self._directory / _DRAFT_NAME).rename(self._directory / OUTPUT_NAME)
        if self._link is not None:
            self._link.symlink_to(self._directory.name)
            self._made.append(self._link)
        directories.sync(self._directory)

    def _discard(self) -> None:
        self._close()
        for path in reversed(self._made):
            if path == self._link:
                path.unlink(missing_ok=True)
                continue
            for name in (_DRAFT_NAME, OUTPUT_NAME):
                (path / name).unlink(missing_ok=True)
            path.rmdir()
        self._made = []

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
