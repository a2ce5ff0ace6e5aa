"""Freezes a mounted file system for a moment: what writes to it waits meanwhile.

A process that waits in a write can't be ended, not even by KILL. Whatever stops something in a
sandbox therefore ends the freezes of its workspace first. A control plane that dies leaves a file
system frozen: whoever mounts or unmounts a workspace next thaws it.
"""

import errno
import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.file_handles import opened

_FREEZE = 0xC0045877
_THAW = 0xC0045878
_STOPPED = (
    "something in the session was stopped, so its files could not stand still until they were "
    "copied: try again"
)
_ENDING = "the sandbox is being stopped: try again"


class Freeze:
    """One freeze of a file system. Any thread may end it."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._why: str | None = None
        self._failure: OSError | None = None
        self._begun = time.monotonic()
        self._ended: float | None = None

    @property
    def seconds(self) -> float:
        """How long the file system has been frozen, or was in all."""
        return (time.monotonic() if self._ended is None else self._ended) - self._begun

    def end(self, why: str | None = None) -> None:
        """Has the file system thawed, and returns at once; `why`: too early for the copy."""
        if not self._over.is_set():
            self._why = why
            self._over.set()

    def check(self) -> None:
        """Raises: ConflictError if it was ended too early; OSError if it could not be ended."""
        if self._failure is not None:
            raise self._failure
        if self._why is not None:
            raise ConflictError(self._why)

    def begin(self) -> None:
        """The file system is frozen from now on."""
        self._begun = time.monotonic()

    def thaw_when_over(self, handle: int, seconds: float, late: str) -> None:
        """Thaws the file system once the freeze is ended, or after that time, because of `late`.

        No other thread thaws it, however long a copy may hang.
        """
        if not self._over.wait(seconds):
            self.end(late)
        try:
            _thaw(handle)
        except OSError as error:
            self._failure = error
        self._ended = time.monotonic()


class Freezes:
    """The freezes of one sandbox's workspace at present."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._present: set[Freeze] = set()
        self._refused = False

    def end(self) -> None:
        """Ends all of them, because something is being stopped; returns at once."""
        with self._lock:
            for freeze in self._present:
                freeze.end(_STOPPED)

    def refuse(self) -> None:
        """Ends all of them, and allows no more until `allow`."""
        self._refused = True
        self.end()

    def allow(self) -> None:
        """Allows freezes again."""
        self._refused = False

    @contextmanager
    def one(self) -> Iterator[Freeze]:
        """A freeze that `end` ends, too. Raises: ConflictError if none is allowed."""
        freeze = Freeze()
        with self._lock:
            self._present.add(freeze)
        try:
            if self._refused:
                raise ConflictError(_ENDING)
            yield freeze
        finally:
            with self._lock:
                self._present.discard(freeze)


@contextmanager
def frozen(mount: Path, freezes: Freezes, seconds: float, late: str) -> Iterator[Freeze]:
    """Everything that was written is on the disk in the block, and nothing more is written.

    The block must call `Freeze.check` between its steps. Write what is pending before, or it is
    written while others wait. Raises: ConflictError if `freezes` were ended before the block, or
    with the text `late` if the block takes longer than that; OSError.
    """
    with opened(mount) as handle, freezes.one() as freeze:
        thawing = threading.Thread(
            target=freeze.thaw_when_over, args=(handle, seconds, late), name="thaw", daemon=True
        )
        fcntl.ioctl(handle, _FREEZE, 0)
        freeze.begin()
        try:
            thawing.start()
        except BaseException:
            _thaw(handle)
            raise
        try:
            FaultPoint.SNAPSHOT_FROZEN.reached()
            yield freeze
        finally:
            freeze.end()
            thawing.join()
        freeze.check()


def thaw(mount: Path) -> None:
    """Thaws a file system that a process which died has left frozen. Raises: OSError."""
    with opened(mount) as handle:
        _thaw(handle)


def _thaw(handle: int) -> None:
    try:
        fcntl.ioctl(handle, _THAW, 0)
    except OSError as error:
        if error.errno != errno.EINVAL:  # it is not frozen
            raise
