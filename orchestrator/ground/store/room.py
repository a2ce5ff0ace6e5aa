"""Disk space reserved for the database, so that stops can be recorded on a full disk."""

import ctypes
import errno
import os
from pathlib import Path

from orchestrator.ground.file_handles import opened

# Enough to record the ends of some hundred sessions.
ROOM_BYTES = 8 * 1024 * 1024
_KEEP_SIZE = 1
# Errors of a file system that can't reserve space: then none is reserved.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)


class Room:
    """Blocks reserved for the write-ahead log beyond its end, without changing its size.

    SQLite writes to them before anywhere else, and nothing else can use them.
    """

    def __init__(self, log: Path, size: int = ROOM_BYTES) -> None:
        self._log = log
        self._size = size
        # The file and its end when the space was last complete.
        self._kept: tuple[int, int] | None = None
        self._fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        self._fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def kept(self) -> bool:
        """Whether the space is complete; reserves what is missing. Raises: OSError."""
        try:
            if self._of(os.stat(self._log, follow_symlinks=False)) == self._kept:
                return True
            with opened(self._log, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW) as descriptor:
                facts = os.fstat(descriptor)
                if self._fallocate(descriptor, _KEEP_SIZE, facts.st_size, self._size) == 0:
                    self._kept = self._of(facts)
                    return True
                number = ctypes.get_errno()
        except FileNotFoundError:
            return True  # nothing was written yet
        if number in _UNSUPPORTED:
            return True
        if number in (errno.ENOSPC, errno.EDQUOT):
            return False
        raise OSError(number, os.strerror(number), str(self._log))

    @staticmethod
    def _of(facts: os.stat_result) -> tuple[int, int]:
        return facts.st_ino, facts.st_size
