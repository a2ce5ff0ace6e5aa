"""Compares files with the digests of a manifest, whenever one is opened."""

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from sandbox_agent.decide.digest import sha256

_PIECE = 1024 * 1024
# A change within one tick of the kernel's clock may leave the same time of change, so what has
# changed so recently is read again at the next open.
_TICK_NS = 20_000_000


class Version(NamedTuple):
    """A file and its state: a write, and a new name, change the time of change."""

    device: int
    inode: int
    size: int
    changed_ns: int


def version(status: os.stat_result) -> Version:
    """The version that a file has."""
    return Version(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


class Contents:
    """What is known of files' contents; `digests` has those that are wanted, by absolute path.

    Of a path that is not in it, any content is right.
    """

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = digests
        self._right: dict[str, Version] = {}

    def right(self, path: str, name: bytes) -> bool:
        """Whether the file that `name` leads to has the content that the path should have.

        Raises: OSError if it can't be read.
        """
        wanted = self._digests.get(path)
        if wanted is None:
            return True
        if self._right.get(path) == version(os.stat(name)):
            return True
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            before, since = version(os.fstat(fd)), time.time_ns()
            if _digest(fd) != wanted:
                return False
            after = version(os.fstat(fd))
        finally:
            os.close(fd)
        if before == after and since - after.changed_ns > _TICK_NS:
            self._right[path] = after
        return True


def _digest(fd: int) -> str:
    digest = sha256()
    while piece := os.read(fd, _PIECE):
        digest.update(piece)
    return digest.hexdigest()
