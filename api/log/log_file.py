"""A log file of bounded size: a full file is renamed, and a new one begins."""

import os
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 16 * 1024 * 1024
# FILE.1 is the most recent of the old files.
KEPT = 3
_STANDARD = (1, 2)


class LogFile:
    """Lines are appended to its `descriptor`; `rotate`, called between lines, limits its size.

    If standard output and error are the same file, they move to the new file as well, so that text
    printed there before logging began, or when a thread fails, is not lost with an old file.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        """Raises: OSError if it can't be opened."""
        self._path = path
        self._max_bytes = max_bytes
        self.descriptor = self._open()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)

    def rotate(self) -> None:
        """Begins a new file if this one is full.

        Raises: OSError, after which the current file stays in use.
        """
        if os.fstat(self.descriptor).st_size < self._max_bytes:
            return
        for number in range(KEPT, 1, -1):
            if (older := self._aside(number - 1)).exists():
                os.replace(older, self._aside(number))
        with suppress(FileNotFoundError):  # the file was removed
            os.replace(self._path, self._aside(1))
        fresh = self._open()
        for standard in _STANDARD:
            if _same(standard, self.descriptor):
                os.dup2(fresh, standard)
        os.dup2(fresh, self.descriptor, inheritable=False)
        os.close(fresh)

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Closes the file."""
        os.close(self.descriptor)


def _same(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:  # it is closed
        return False
