"""Files that are read: their bytes as streams, and what is known of them."""

from collections.abc import AsyncGenerator, AsyncIterator

from orchestrator.ground.errors import RangeNotSatisfiableError, TooLargeError
from orchestrator.work.files.file_stream import FileStream
from sandbox_agent.decide.files import ranges
from sandbox_agent.decide.protocol import CHUNK_BYTES

# Bytes of a file that is compared with its hash before it is returned.
_MOST_HELD_BYTES = 16 * 1024 * 1024
# The first and the last byte; without the first one, the number of last bytes.
Range = tuple[int | None, int | None]


class MemoryStream:
    """Bytes in memory, in the form of a stream."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The bytes, in chunks."""
        for start in range(0, len(self._data), CHUNK_BYTES):
            yield self._data[start : start + CHUNK_BYTES]

    async def close(self) -> None:
        """Frees the bytes."""
        self._data = b""


class FileDownload:
    """A file being read: its `size` in bytes when it was opened, and its bytes by iteration.

    `permissions` are its nine bits, or 0o644 if its agent does not report them; `modified` is the
    time of its last change in seconds, None if that is not reported. `version` is its entity tag.
    `part`: where the requested range begins, and its length; None: the bytes are all. The caller
    must close it.
    """

    def __init__(
        self,
        stream: FileStream | MemoryStream,
        size: int,
        permissions: int,
        content_hash: str | None = None,
        modified: int | None = None,
        version: str | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        self._stream = stream
        self.version = version
        self.part = part
        self.modified = modified
        self.size = size
        self.permissions = permissions
        # Of a file of a context pack.
        self.content_hash = content_hash

    def chunks(self) -> AsyncIterator[bytes]:
        """The file's bytes, in chunks of at most 256 KiB. Raises: SandboxUnavailableError."""
        return self._stream.chunks()

    async def close(self) -> None:
        """Releases the stream."""
        await self._stream.close()


def part_of(size: int, wanted: Range, what: str = "file") -> tuple[int, int]:
    """Where a range of so many bytes begins, and its length. Raises: RangeNotSatisfiableError."""
    found = ranges.part(size, *wanted)
    if found is None:
        raise RangeNotSatisfiableError(f"the {what} has {size} bytes")
    return found


async def whole(opened: FileDownload) -> bytes:
    """All bytes of the file. Raises: TooLargeError."""
    data = bytearray()
    async for chunk in opened.chunks():
        data += chunk
        if len(data) > _MOST_HELD_BYTES:
            raise TooLargeError(f"a file of a context pack is read up to {_MOST_HELD_BYTES} bytes")
    return bytes(data)
