"""A command's output: bounded, in order, and readable from any offset."""

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.decide.protocol import MOST_CHUNKS

if TYPE_CHECKING:
    from sandbox_agent.core.stored_output import StoredOutput

STDOUT = "stdout"
STDERR = "stderr"

# Each chunk costs this in addition to its bytes. Otherwise a command that alternates between its
# streams byte by byte could make the agent hold many times the limit.
_CHUNK_COST = 128
_LARGEST_CHUNK = 64 * 1024


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


class Output:
    """Both streams of one command in the order they were read.

    At most `limit` bytes are kept: the first and the last half of the limit, or with `keep_tail`
    (background commands, whose latest lines matter) only the last bytes. All bytes are counted.
    Output that exceeds the limit also goes to `stored` from its first byte on, as far as `stored`
    has room.
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
        """Output of `total` bytes whose content is only what `restore` will store."""
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
