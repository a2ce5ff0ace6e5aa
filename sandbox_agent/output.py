"""What a command printed: bounded, in order, readable from any offset."""

from collections import deque
from typing import NamedTuple

STDOUT = "stdout"
STDERR = "stderr"

# Each chunk is charged this on top of its bytes, so that a command which alternates
# between its streams byte by byte cannot make the agent hold many times the limit.
_CHUNK_COST = 128
_LARGEST_CHUNK = 64 * 1024


class Chunk(NamedTuple):
    """Bytes of one stream; `offset` counts the bytes of both streams before it."""

    stream: str
    offset: int
    data: bytearray


class Output:
    """Both streams of one command in the order they were read.

    At most `limit` bytes are kept: the first ones, or with `keep_tail` (background
    commands, whose latest lines matter) the last ones. All are counted.
    """

    def __init__(self, limit: int, keep_tail: bool) -> None:
        self._limit = limit
        self._keep_tail = keep_tail
        self._chunks: deque[Chunk] = deque()
        self._cost = 0
        self.kept = 0
        self.total = 0

    @property
    def truncated(self) -> bool:
        """Whether bytes were dropped."""
        return self.kept < self.total

    def add(self, stream: str, data: bytes) -> None:
        """Counts `data` and keeps what fits."""
        offset = self.total
        self.total += len(data)
        if self._keep_tail:
            self._append(stream, offset, data)
            while self._cost > self._limit:
                self._drop_oldest()
        elif self.kept == offset:  # nothing was dropped yet: what is kept has no holes
            room = self._limit - self._cost
            self._append(stream, offset, data[: max(0, room)])

    def _append(self, stream: str, offset: int, data: bytes) -> None:
        if not data:
            return
        last = self._chunks[-1] if self._chunks else None
        if last and last.stream == stream and len(last.data) + len(data) <= _LARGEST_CHUNK:
            last.data.extend(data)
        else:
            self._chunks.append(Chunk(stream, offset, bytearray(data)))
            self._cost += _CHUNK_COST
        self.kept += len(data)
        self._cost += len(data)

    def _drop_oldest(self) -> None:
        stream, offset, data = self._chunks.popleft()
        cut = min(self._cost - self._limit, len(data))
        self.kept -= cut
        self._cost -= cut
        if cut < len(data):
            self._chunks.appendleft(Chunk(stream, offset + cut, data[cut:]))
        else:
            self._cost -= _CHUNK_COST

    def read(self, after: int, limit: int) -> tuple[list[Chunk], int]:
        """Kept chunks from offset `after` on, at most `limit` bytes, and the offset to go on at."""
        chunks: list[Chunk] = []
        for stream, offset, data in self._chunks:
            end = offset + len(data)
            if end <= after:
                continue
            start = max(offset, after)
            part = data[start - offset :][:limit]
            chunks.append(Chunk(stream, start, part))
            limit -= len(part)
            if limit <= 0:
                return chunks, start + len(part)
        return chunks, max(after, self.total)
