"""A command's output: bounded, in order, and readable from any offset."""

import os
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from sandbox_agent.core.output_times import OutputTimes
from sandbox_agent.decide.protocol import MOST_CHUNKS, MOST_STORED

STDOUT = "stdout"
STDERR = "stderr"

# Each chunk costs this in addition to its bytes. Otherwise a command that alternates between its
# streams byte by byte could make the agent hold many times the limit.
_CHUNK_COST = 128
_LARGEST_CHUNK = 64 * 1024
# Divisors: the stored output of all commands may take this part of the sandbox's memory, and one
# command's may take this part of that room.
_PART_OF_MEMORY = 16
_PART_OF_ROOM = 4
# What a change from one stream to the other costs, because its offset is kept.
_CHANGE_COST = 16


class Chunk(NamedTuple):
    """Bytes of one stream; `offset` counts the bytes of both streams before it."""

    stream: str
    offset: int
    data: bytearray


class _Kept:
    """Chunks in the order they were read; each one's cost counts toward a limit."""

    def __init__(self, limit: int) -> None:
        self.chunks: deque[Chunk] = deque()
        self.size = 0
        self._limit = limit
        self._cost = 0

    @property
    def room(self) -> int:
        """Bytes that may still be added, assuming one more chunk."""
        return max(0, self._limit - self._cost - _CHUNK_COST)

    def add(self, stream: str, offset: int, data: bytes) -> None:
        """Adds the bytes, whether there is room or not."""
        if not data:
            return
        last = self.chunks[-1] if self.chunks else None
        if last and last.stream == stream and len(last.data) + len(data) <= _LARGEST_CHUNK:
            last.data.extend(data)
        else:
            self.chunks.append(Chunk(stream, offset, bytearray(data)))
            self._cost += _CHUNK_COST
        self.size += len(data)
        self._cost += len(data)

    @property
    def over(self) -> bool:
        """Whether the limit is exceeded."""
        return self._cost > self._limit

    def shrink(self) -> None:
        """Drops the oldest bytes until the limit is met."""
        while self.over:
            stream, offset, data = self.chunks.popleft()
            cut = min(self._cost - self._limit, len(data))
            self.size -= cut
            self._cost -= cut
            if cut < len(data):
                self.chunks.appendleft(Chunk(stream, offset + cut, data[cut:]))
            else:
                self._cost -= _CHUNK_COST


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

    Their memory has no name in any file system, and a session's commands share the room for it.
    Storing never waits and never fails: if there is no more room, the rest is left out, and `size`
    shows how much was stored.

    It exists as long as its sandbox; the control plane restores it in the session's next sandbox.
    No process of the session can reach it.
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
        """Adds the bytes that there is room for; after the first omission, it adds nothing more."""
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


class Output:
    """Both streams of one command in the order they were read.

    At most `limit` bytes are kept: the first and the last half of the limit, or with `keep_tail`
    (background commands, whose latest lines matter) only the last bytes. All bytes are counted.
    Output that exceeds the limit also goes to `stored` from its first byte on, as far as `stored`
    has room.
    """

    def __init__(
        self,
        limit: int,
        keep_tail: bool,
        stored: StoredOutput | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch."""
        first = 0 if keep_tail else limit // 2
        self._head = _Kept(first)
        self._tail = _Kept(limit - first)
        self._head_full = keep_tail
        self._stored = stored
        self._long = False
        self._clock = clock
        self._times = OutputTimes()
        self.total = 0

    @classmethod
    def restored(cls, stored: StoredOutput, total: int) -> "Output":
        """Output of `total` bytes, whose content comes through `restore` alone."""
        output = cls(0, keep_tail=True, stored=stored)
        output.total = total
        return output

    def restore(self, chunks: Iterable[Chunk]) -> int:
        """Stores more chunks; returns the number of stored bytes."""
        for chunk in chunks:
            if self._stored is not None:
                self._stored.add(chunk.stream, chunk.data)
        return self.stored

    @property
    def kept(self) -> int:
        """Bytes that are kept."""
        return self._head.size + self._tail.size

    @property
    def cut(self) -> int:
        """Bytes that were dropped."""
        return self.total - self.kept

    @property
    def stored(self) -> int:
        """Bytes that are stored, counted from the first; 0 unless the output exceeded the limit."""
        return 0 if self._stored is None else self._stored.size

    def add(self, stream: str, data: bytes) -> None:
        """Counts `data` and keeps what fits."""
        if self._long and self._stored is not None:
            self._stored.add(stream, data)
        offset = self.total
        self._times.add(offset, self._clock())
        self.total += len(data)
        if not self._head_full:
            first = data[: self._head.room]
            self._head.add(stream, offset, first)
            self._head_full = len(first) < len(data)
            offset, data = offset + len(first), data[len(first) :]
        if data:
            self._tail.add(stream, offset, data)
            if self._tail.over and not self._long:
                self._store()
            self._tail.shrink()

    def _store(self) -> None:
        """Starts storing just before the first byte is dropped, while everything is still here."""
        self._long = True
        if self._stored is not None:
            for chunk in chain(self._head.chunks, self._tail.chunks):
                self._stored.add(chunk.stream, chunk.data)

    def forget(self) -> None:
        """Drops everything but the stored bytes."""
        self._head, self._tail = _Kept(0), _Kept(0)

    def timed(self, chunks: Iterable[Chunk]) -> list[tuple[Chunk, float | None]]:
        """The chunks with the times at which they were read, divided where these differ.

        At most MOST_CHUNKS: the last ones are left undivided if there would be more.
        """
        given = list(chunks)
        room = MOST_CHUNKS - len(given)
        found: list[tuple[Chunk, float | None]] = []
        for stream, offset, data in given:
            pieces = self._times.pieces(offset, len(data))
            if len(pieces) - 1 > room:
                pieces = [(offset, offset + len(data), pieces[0][2])]
            room -= len(pieces) - 1
            for start, end, when in pieces:
                found.append((Chunk(stream, start, data[start - offset : end - offset]), when))
        return found

    def read(self, after: int, limit: int, whole: bool = False) -> tuple[list[Chunk], int]:
        """Kept chunks from offset `after` on, and the offset at which to continue.

        With `whole`, stored chunks are included. Returns at most `limit` bytes and MOST_CHUNKS
        chunks.
        """
        chunks: list[Chunk] = []
        if whole and self._stored is not None and after < self._stored.size:
            chunks = self._stored.read(after, limit, MOST_CHUNKS)
            after += (size := sum(len(chunk.data) for chunk in chunks))
            limit -= size
            if limit <= 0 or len(chunks) >= MOST_CHUNKS or not size:
                return chunks, after
        for stream, offset, data in chain(self._head.chunks, self._tail.chunks):
            end = offset + len(data)
            if end <= after:
                continue
            start = max(offset, after)
            part = data[start - offset :][:limit]
            chunks.append(Chunk(stream, start, part))
            limit -= len(part)
            if limit <= 0 or len(chunks) >= MOST_CHUNKS:
                return chunks, start + len(part)
        return chunks, max(after, self.total)


def _write(fd: int, data: bytes | bytearray) -> int:
    """Writes the data; returns how much was written, which is all of it unless memory is short."""
    try:
        return os.write(fd, data) if data else 0
    except OSError:
        return 0
