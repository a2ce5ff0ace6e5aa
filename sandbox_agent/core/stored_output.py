"""Stores the entire output of a command in memory that has no name in any file system.

A session's commands share the room for it. Storing never waits and never fails: if there is no more
room, the rest is left out, and `size` shows how much was stored.
"""

import os
from array import array
from bisect import bisect_right

from sandbox_agent.core.output import STDERR, STDOUT, Chunk
from sandbox_agent.decide.protocol import MOST_STORED

# Divisors: all commands share this part of the sandbox's memory, and one may use a part of that.
_PART_OF_MEMORY = 16
_PART_OF_ROOM = 4
# The cost of each change from one stream to the other, for which a number is kept.
_CHANGE_COST = 16


class Room:
    """The room for stored output that is left in a sandbox: bytes, and number of outputs."""

    def __init__(self, memory_bytes: int) -> None:
        self.left = memory_bytes // _PART_OF_MEMORY
        self.most = self.left // _PART_OF_ROOM
        self._outputs = MOST_STORED

    def open(self) -> int | None:
        """Creates a memory file; None if there is no room for another."""
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

    It exists as long as its sandbox, and moves to the session's next one. No process of the session
    can reach it.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._left = room.most
        self._fd: int | None = None
        # The offsets at which the stream changed; the two streams alternate.
        self._changes = array("Q")
        self._first = self._last = ""
        self._full = False
        self.begun = False
        self.size = 0

    def add(self, stream: str, data: bytes | bytearray) -> None:
        """Adds what there is room for; after the first omission, nothing more is added."""
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
        """Stored output from offset `after` on: at most `limit` bytes and `most` chunks."""
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
        """Returns the memory to the system; the room stays used."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _stream(self, number: int) -> str:
        """The stream between two changes."""
        if number % 2 == 0:
            return self._first
        return STDOUT if self._first == STDERR else STDERR


def _write(fd: int, data: bytes | bytearray) -> int:
    """Writes the data; returns how much was written, which is all of it unless memory is short."""
    try:
        return os.write(fd, data) if data else 0
    except OSError:
        return 0
