"""Freezes a mounted file system for a moment: what writes to it waits meanwhile.

A process that dies leaves it frozen: whoever mounts or unmounts a workspace next thaws it.
"""

import errno
import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.file_handles import opened

_FREEZE = 0xC0045877
_THAW = 0xC0045878


class Freeze:
    """How long a file system has been frozen, in seconds; it is measured until it is thawed."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._ended: float | None = None

    @property
    def seconds(self) -> float:
        """The time so far, or in all."""
        return (time.monotonic() if self._ended is None else self._ended) - self._begun

    def end(self) -> None:
        """Ends the measurement."""
        self._ended = time.monotonic()


@contextmanager
def frozen(mount: Path) -> Iterator[Freeze]:
    """Everything that was written is on the disk in the block, and nothing more is written.

    Write what is pending before, or it is written while others wait. Raises: OSError.
    """
    with opened(mount) as handle:
        freeze = Freeze()
        fcntl.ioctl(handle, _FREEZE, 0)
        try:
            FaultPoint.SNAPSHOT_FROZEN.reached()
            yield freeze
        finally:
            fcntl.ioctl(handle, _THAW, 0)
            freeze.end()


def thaw(mount: Path) -> None:
    """Thaws a file system that a process which died has left frozen. Raises: OSError."""
    with opened(mount) as handle:
        try:
            fcntl.ioctl(handle, _THAW, 0)
        except OSError as error:
            if error.errno != errno.EINVAL:  # it is not frozen
                raise
