"""What a command printed: bounded, in order, readable from any offset."""

from collections import deque
from itertools import chain
from typing import NamedTuple

STDOUT = "stdout"
STDERR = "stderr"

# Each chunk is charged this on top of its bytes, so that a command which alternates
# between its streams byte by byte cannot make the agent hold many times the limit.
_CHUNK_COST = 128
_LARGEST_CHUNK = 64 * 1024
# In one answer: the control plane reads no message of very many values.
_MOST_CHUNKS = 4096


class Chunk(NamedTuple):
    """Bytes of one stream; `offset` counts the bytes of both streams before it."""

    stream: str
    offset: int
    data: bytearray


class _Kept:
    """Chunks in the order they were read; their cost is what they take of a limit."""

    def __init__(self, limit: int) -> None:
        self.chunks: deque[Chunk] = deque()
        self.size = 0
        self._limit = limit
        self._cost = 0

    @property
    def room(self) -> int:
        """Bytes that may still be added, as one more chunk at worst."""
        return max(0, self._limit - self._cost - _CHUNK_COST)

    def add(self, stream: str, offset: int, data: bytes) -> None:
        """Adds them, whether there is room or not."""
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

    def shrink(self) -> None:
        """Drops the oldest bytes, until the others are within the limit."""
        while self._cost > self._limit:
            stream, offset, data = self.chunks.popleft()
            cut = min(self._cost - self._limit, len(data))
            self.size -= cut
            self._cost -= cut
            if cut < len(data):
                self.chunks.appendleft(Chunk(stream, offset + cut, data[cut:]))
            else:
                self._cost -= _CHUNK_COST


class Output:
    """Both streams of one command in the order they were read.

    At most `limit` bytes are kept: the first and the last of them, half each, or with `keep_tail`
    (background commands, whose latest lines matter) only the last ones. All are counted.
    """

    def __init__(self, limit: int, keep_tail: bool) -> None:
        first = 0 if keep_tail else limit // 2
        self._head = _Kept(first)
        self._tail = _Kept(limit - first)
        self._head_full = keep_tail
        self.total = 0

    @property
    def kept(self) -> int:
        """How many bytes are kept."""
        return self._head.size + self._tail.size

    @property
    def cut(self) -> int:
        """How many bytes were dropped."""
        return self.total - self.kept

    def add(self, stream: str, data: bytes) -> None:
        """Counts `data` and keeps what fits."""
        offset = self.total
        self.total += len(data)
        if not self._head_full:
            first = data[: self._head.room]
            self._head.add(stream, offset, first)
            self._head_full = len(first) < len(data)
            offset, data = offset + len(first), data[len(first) :]
        if data:
            self._tail.add(stream, offset, data)
            self._tail.shrink()

    def read(self, after: int, limit: int) -> tuple[list[Chunk], int]:
        """Kept chunks from offset `after` on, and the offset to go on at.

        At most `limit` bytes; fewer where a command changed its stream very often.
        """
        chunks: list[Chunk] = []
        for stream, offset, data in chain(self._head.chunks, self._tail.chunks):
            end = offset + len(data)
            if end <= after:
                continue
            start = max(offset, after)
            part = data[start - offset :][:limit]
            chunks.append(Chunk(stream, start, part))
            limit -= len(part)
            if limit <= 0 or len(chunks) >= _MOST_CHUNKS:
                return chunks, start + len(part)
        return chunks, max(after, self.total)
