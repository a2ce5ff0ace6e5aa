"""Uploads whose destination follows their bytes: kept aside until it is known, within bounds."""

import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from orchestrator.ground.errors import CapacityExhaustedError, RateLimitedError, TooLargeError
from orchestrator.ground.limits import UNREAD_BYTES
from orchestrator.ground.threads import Threads
from orchestrator.host.node.resources import free_bytes

# Of one upload, of all of a key, and of everybody.
MOST_BYTES = 2**30
MOST_BYTES_OF_KEY = 2**31
MOST_BYTES_OF_ALL = 2**32
_CHUNK = 256 * 1024
_THREADS = 8
_SECONDS = 60.0
_RETRY_SECONDS = 5

T = TypeVar("T")


class Spools:
    """What all uploads keep aside."""

    def __init__(self) -> None:
        self._threads = Threads("uploads", _THREADS)
        self._held: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Bytes that are kept aside."""
        return self._held.total()

    def take(self, account: str, size: int) -> None:
        """Counts bytes. Raises: RateLimitedError, CapacityExhaustedError."""
        if self._held[account] + size > MOST_BYTES_OF_KEY:
            text = f"this key's uploads hold {MOST_BYTES_OF_KEY} bytes: finish some first"
            raise RateLimitedError(text, limit=UNREAD_BYTES, retry_after=_RETRY_SECONDS)
        if self.held + size > MOST_BYTES_OF_ALL:
            text = "too many bytes are being uploaded: try again"
            raise CapacityExhaustedError(text, retry_after=_RETRY_SECONDS)
        self._held[account] += size

    def give_back(self, account: str, size: int) -> None:
        """Counts bytes no longer."""
        self._held[account] -= size
        if not self._held[account]:
            del self._held[account]

    async def aside(self, work: Callable[[], T]) -> T:
        """The result of work that may wait for a disk. Raises: CapacityExhaustedError."""
        try:
            return await self._threads.call(work, _SECONDS)
        except TimeoutError:
            text = "the disk for uploads does not answer: try again"
            raise CapacityExhaustedError(text, retry_after=_RETRY_SECONDS) from None


class Spool:
    """One upload of a key: a file without a name, or memory while it is short.

    Its owner closes it.
    """

    def __init__(self, spools: Spools, account: str, directory: Path, reserve: int) -> None:
        """`reserve` bytes of the directory's disk stay free."""
        self._spools, self._account = spools, account
        self._directory, self._reserve = directory, reserve
        self._file: BinaryIO | None = None
        self._begun = bytearray()
        self.size = 0

    async def fill(self, chunks: AsyncIterator[bytes]) -> None:
        """Keeps all chunks. Raises: TooLargeError, the errors of `Spools.take` and `aside`."""
        async for chunk in chunks:
            if self.size + len(chunk) > MOST_BYTES:
                raise TooLargeError(f"the upload is over the limit of {MOST_BYTES} bytes")
            self._spools.take(self._account, len(chunk))
            self.size += len(chunk)
            self._begun += chunk
            if len(self._begun) >= _CHUNK:
                await self._flush()

    async def _flush(self) -> None:
        data, self._begun = bytes(self._begun), bytearray()
        if self._file is None:
            self._file = await self._spools.aside(self._open)
        await self._spools.aside(partial(self._write, self._file, data))

    def _write(self, file: BinaryIO, data: bytes) -> None:
        if free_bytes(self._directory) - self._reserve < len(data):
            text = "the host is short of disk space for an upload"
            raise CapacityExhaustedError(text, retry_after=_RETRY_SECONDS)
        file.write(data)

    def _open(self) -> BinaryIO:
        return tempfile.TemporaryFile(dir=self._directory)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """What was kept."""
        if self._file is not None:
            await self._spools.aside(partial(self._file.seek, 0))
            while data := await self._spools.aside(partial(self._file.read, _CHUNK)):
                yield data
        if self._begun:
            yield bytes(self._begun)

    async def close(self) -> None:
        """Forgets it all."""
        self._spools.give_back(self._account, self.size)
        if self._file is not None:
            await self._spools.aside(self._file.close)
