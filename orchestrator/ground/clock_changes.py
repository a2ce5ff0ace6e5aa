"""Notices when the host's clock is set, and when the host wakes from sleep.

Timers of the event loop count seconds in which the host is awake. A moment that was computed from
the wall clock, and a timer that waits for it, are wrong after either of the two.
"""

import asyncio
import ctypes
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

log = logging.getLogger(__name__)

Listener = Callable[[timedelta], None]

_LIBC = ctypes.CDLL(None, use_errno=True)
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
# The timer is at an absolute time, and the kernel cancels it whenever the clock is set.
_ABSOLUTE, _CANCEL_ON_SET = 1, 2
_NEVER = 2**62


class _Timer(ctypes.Structure):
    """The kernel's `struct itimerspec`: an interval, and the time of the first expiry."""

    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("every", "every_ns", "seconds", "nanoseconds")
    )


class ClockChanges:
    """Calls its listeners with how far the clock went forward, besides the time that passed.

    Zero after a sleep, in which the time passed as well. A clock that is only made to run faster or
    slower is no change.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._descriptor: int | None = None
        self._offset = 0.0

    def on_change(self, listener: Listener) -> None:
        """Calls it after each change, in the order of registration."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begins to notice. Raises: OSError."""
        self._descriptor = _checked(_LIBC.timerfd_create(time.CLOCK_REALTIME, _FLAGS))
        self._arm(self._descriptor)
        asyncio.get_running_loop().add_reader(self._descriptor, self._changed, self._descriptor)

    def close(self) -> None:
        """Stops; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def announce(self, forward: timedelta) -> None:
        """Calls the listeners; the failure of one keeps no other from it."""
        for listener in self._listeners:
            try:
                listener(forward)
            except Exception:
                log.exception("a change of the host's clock is not followed")

    def _changed(self, descriptor: int) -> None:
        with suppress(OSError):  # ECANCELED, which says that the clock was set
            os.read(descriptor, 8)
        before = self._offset
        self._arm(descriptor)
        forward = self._offset - before
        log.warning("the host's clock was set, or the host slept: %+.3f s", forward)
        self.announce(timedelta(seconds=forward))

    def _arm(self, descriptor: int) -> None:
        flags = _ABSOLUTE | _CANCEL_ON_SET
        never = _Timer(0, 0, _NEVER, 0)
        _checked(_LIBC.timerfd_settime(descriptor, flags, ctypes.byref(never), None))
        # The time since the host's start goes on while it sleeps, and nobody can set it.
        self._offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
