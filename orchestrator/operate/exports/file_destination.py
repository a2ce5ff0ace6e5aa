"""An export to a file: a line of JSON for each event, synced before it counts."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from orchestrator.ground.threads import KeyedThreads
from orchestrator.operate.exports.destination import ExportedEvent, ExportError

_SECONDS = 60.0
_MODE = 0o640  # a collector reads it by its group
# The end of the file that is looked at for a line that was cut: no line is longer.
_MOST_LINE = 512 * 1024


class FileDestination:
    """Appends to a file. If it was renamed or removed, the next batch is in a new file.

    So a rotation by `rename` needs no signal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = KeyedThreads("the file of an export", 1)

    async def send(self, events: Sequence[ExportedEvent]) -> None:
        """As `Destination.send`."""
        lines = [event.text + b"\n" for event in events]
        try:
            # While a call hangs, no other one writes.
            await self._threads.call("file", partial(append, self._path, lines), _SECONDS)
        except TimeoutError as error:
            why = str(error) or f"the disk did not answer within {_SECONDS:g} s"
            raise ExportError(f"{self._path}: {why}") from None
        except OSError as error:
            raise ExportError(f"{self._path}: {error.strerror}") from None

    async def close(self) -> None:
        """Nothing is open between batches."""


def append(path: Path, lines: Sequence[bytes]) -> None:
    """Appends lines durably. A line that a kill or a full disk has cut is completed first.

    Raises: OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags, _MODE), "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MOST_LINE))
        left = memoryview(_rest(file.read(_MOST_LINE), lines))
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())
    if not size:
        _sync_directory(path.parent)


def _rest(end: bytes, lines: Sequence[bytes]) -> bytes:
    """What to write after a file's end: all lines, or what is missing of a line that was begun."""
    begun = end[end.rfind(b"\n") + 1 :]
    if not begun:
        return b"".join(lines)
    for number, line in enumerate(lines):
        if line.startswith(begun):
            return b"".join([line[len(begun) :], *lines[number + 1 :]])
    return b"".join([b"\n", *lines])


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
