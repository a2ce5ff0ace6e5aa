"""All that a command with long output printed, in memory that has no name in any file system.

A session's commands share the room for it. Nothing waits and nothing fails: where there is no
more room, the rest is left out, and `size` says so.
"""

import os
from array import array
from bisect import bisect_right

from sandbox_agent.output import STDERR, STDOUT, Chunk
from sandbox_agent.protocol import MOST_STORED

# Of a sandbox's memory, what all of its commands together and one of them may store.
_PART_OF_MEMORY = 16
_PART_OF_ROOM = 4
# Charged for each change from one stream to the other: a number is kept of it.
_CHANGE_COST = 16


class Room:
    """What may still be stored of a sandbox's output: bytes, and outputs."""

    def __init__(self, memory_bytes: int) -> None:
        self.left = memory_bytes // _PART_OF_MEMORY
        self.most = self.left // _PART_OF_ROOM
        self._outputs = MOST_STORED

    def open(self) -> int | None:
        """A new file in memory, where there may be one more."""
        if not self._outputs or not self.left:
            return None
        try:
            fd = os.memfd_create("output", os.MFD_CLOEXEC)
        except OSError:
            return None
        self._outputs -= 1
        return fd


class StoredOutput:
    """Both streams of one command from the beginning, in the order they were read.

    It stays as long as its sandbox, and goes along to the session's next. No process of the
    session can reach it.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._left = room.most
        self._fd: int | None = None
        # The offsets at which the stream changed; the streams take turns.
        self._changes = array("Q")
        self._first = self._last = ""
        self._full = False
        self.begun = False
        self.size = 0

    def add(self, stream: str, data: bytes | bytearray) -> None:
        """Adds what there is room for; once something was left out, all is."""
        if not self.begun:
            self.begun = True
            self._fd = self._room.open()
        if self._fd is None or self._full or not data:
            return
        cost = 0 if stream == self._last else _CHANGE_COST
        part = data[: max(0, min(self._left, self._room.left) - cost)]
        written = _write(self._fd, part)
        self._full = written < len(data)
        if not written:
            return
        if cost:
            self._changes.append(self.size)
            self._first = self._first or stream
            self._last = stream
        self.size += written
        self._left -= written + cost
        self._room.left -= written + cost

    def read(self, after: int, limit: int, most: int) -> list[Chunk]:
        """What is stored from offset `after` on: at most `limit` bytes and `most` chunks."""
        chunks: list[Chunk] = []
        while self._fd is not None and after < self.size and limit > 0 and len(chunks) < most:
            number = bisect_right(self._changes, after)
            end = self._changes[number] if number < len(self._changes) else self.size
            data = os.pread(self._fd, min(end - after, limit), after)
            chunks.append(Chunk(self._stream(number - 1), after, bytearray(data)))
            after += len(data)
            limit -= len(data)
        return chunks

    def close(self) -> None:
        """Gives the memory back to the system, not to the room."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _stream(self, number: int) -> str:
        """The one that was printed to between two changes."""
        if number % 2 == 0:
            return self._first
        return STDOUT if self._first == STDERR else STDERR


def _write(fd: int, data: bytes | bytearray) -> int:
    """How much of it was written: all, where memory is not short."""
    try:
        return os.write(fd, data) if data else 0
    except OSError:
        return 0
