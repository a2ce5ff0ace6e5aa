"""What a command printed: bounded, in order, readable from any offset."""

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.protocol import MOST_CHUNKS

if TYPE_CHECKING:
    from sandbox_agent.stored_output import StoredOutput

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

    @property
    def over(self) -> bool:
        """Whether there is more than may be kept."""
        return self._cost > self._limit

    def shrink(self) -> None:
        """Drops the oldest bytes, until the others are within the limit."""
        while self.over:
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
    (background commands, whose latest lines matter) only the last ones. All are counted. Of
    more than that, all from the beginning is put into `stored`, as far as it takes it.
    """

    def __init__(self, limit: int, keep_tail: bool, stored: "StoredOutput | None" = None) -> None:
        first = 0 if keep_tail else limit // 2
        self._head = _Kept(first)
        self._tail = _Kept(limit - first)
        self._head_full = keep_tail
        self._stored = stored
        self._long = False
        self.total = 0

    @classmethod
    def restored(cls, stored: "StoredOutput", total: int) -> "Output":
        """Output of `total` bytes of which nothing is here but what will be stored."""
        output = cls(0, keep_tail=True, stored=stored)
        output.total = total
        return output

    def restore(self, chunks: Iterable[Chunk]) -> int:
        """Stores more of it; returns how many bytes are."""
        for chunk in chunks:
            if self._stored is not None:
                self._stored.add(chunk.stream, chunk.data)
        return self.stored

    @property
    def kept(self) -> int:
        """How many bytes are kept."""
        return self._head.size + self._tail.size

    @property
    def cut(self) -> int:
        """How many bytes were dropped."""
        return self.total - self.kept

    @property
    def stored(self) -> int:
        """How many bytes are stored, from the beginning on; none of output that is not long."""
        return 0 if self._stored is None else self._stored.size

    def add(self, stream: str, data: bytes) -> None:
        """Counts `data` and keeps what fits."""
        if self._long and self._stored is not None:
            self._stored.add(stream, data)
        offset = self.total
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
        """It is about to lose its first byte: until now all of it is here."""
        self._long = True
        if self._stored is not None:
            for chunk in chain(self._head.chunks, self._tail.chunks):
                self._stored.add(chunk.stream, chunk.data)

    def forget(self) -> None:
        """Nothing is kept any more but what is stored."""
        self._head, self._tail = _Kept(0), _Kept(0)

    def read(self, after: int, limit: int, whole: bool = False) -> tuple[list[Chunk], int]:
        """Kept chunks from offset `after` on, and the offset to go on at.

        `whole`: those that are stored, too. At most `limit` bytes and MOST_CHUNKS chunks.
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
