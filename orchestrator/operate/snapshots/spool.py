"""Parts of an archive on the host's disk: files without names, so that none can be left."""

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from orchestrator.ground.errors import CapacityExhaustedError
from orchestrator.host.node.resources import free_bytes
from orchestrator.operate.snapshots.archive import PartFacts

_CHUNK = 1024 * 1024
_RETRY_SECONDS = 60


class Spool:
    """The parts' files; `reserve` bytes of the disk stay free. Methods block.

    If a thread that nobody waits for any more writes after `close`, that fails.
    """

    def __init__(self, directory: Path, reserve: int) -> None:
        self._directory, self._reserve = directory, reserve
        self._files: dict[str, int] = {}
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def make(self, name: str) -> int:
        """The descriptor of a new part. Raises: OSError."""
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        self._files[name] = os.open(self._directory, flags, 0o600)
        return self._files[name]

    def sink(self, name: str) -> Callable[[bytes], object]:
        """A function that writes a new part's bytes. Raises: OSError, CapacityExhaustedError."""
        self.make(name)

        def write(data: bytes) -> None:
            if self.room() < len(data):
                raise CapacityExhaustedError(
                    "the host is short of disk space for a snapshot", retry_after=_RETRY_SECONDS
                )
            with self._lock:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._files[name], rest) :]

        return write

    def room(self) -> int:
        """How much more may be written."""
        return max(0, free_bytes(self._directory) - self._reserve)

    def open(self, name: str) -> int:
        """The descriptor of a part, at its beginning."""
        os.lseek(self._files[name], 0, os.SEEK_SET)
        return self._files[name]

    def facts(self, name: str) -> PartFacts:
        """The size and the digest of a part."""
        handle, found, size = self.open(name), hashlib.sha256(), 0
        while data := os.read(handle, _CHUNK):
            found.update(data)
            size += len(data)
        return PartFacts(name, size, found.hexdigest())

    def read(self, name: str, offset: int) -> bytes:
        """A piece of a part."""
        with self._lock:
            return os.pread(self._files[name], _CHUNK, offset)

    def close(self) -> None:
        """Frees the files; may be repeated."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])
