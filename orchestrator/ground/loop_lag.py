"""Measures how long the event loop does one thing while everything else waits, and what it does."""

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from orchestrator.ground.fair_share import Metered

T = TypeVar("T")

SLOW_SECONDS = 0.05
# Work of neither a request nor a turn: connections of sandboxes, the way out, and so on.
OTHER = "other work"
_MINUTES = 60
# While the loop has more to do, it looks this often at what the kernel has for it. A request takes
# some twenty passes, most of which only hand a result from one task to the next.
_LOOK_SECONDS = 0.0002


class LongestPass(NamedTuple):
    """The longest pass in a time: its length, the operation that took most of it, and its end."""

    seconds: float
    operation: str
    time: datetime


class LoopLag:
    """Measures passes of the event loop. In one pass, it does everything that is due."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        # The longest step of the present pass, and its operation.
        self.longest_step = 0.0
        self.operation = OTHER
        # The longest pass of each minute that had one, the latest last.
        self._minutes: deque[tuple[int, LongestPass]] = deque()
        self.slow_passes = 0

    def passed(self, now: float, seconds: float) -> None:
        """Counts a pass that has ended at that time of the clock. It must be cheap."""
        if seconds >= SLOW_SECONDS:
            self.slow_passes += 1
        minute = int(now // 60)
        if not self._minutes or minute > self._minutes[-1][0]:
            while self._minutes and self._minutes[0][0] <= minute - _MINUTES:
                self._minutes.popleft()
            self._minutes.append((minute, LongestPass(0.0, OTHER, datetime.now(UTC))))
        if seconds > self._minutes[-1][1].seconds:
            operation = self.operation if self.longest_step > seconds / 2 else OTHER
            self._minutes[-1] = minute, LongestPass(seconds, operation, datetime.now(UTC))
        self.longest_step = 0.0

    def measured(self, operation: str, work: Coroutine[Any, Any, T]) -> Metered[T]:
        """Awaits work, and notes how long each of its steps takes."""
        return Metered(work, partial(self._note, operation), self._clock)

    def _note(self, operation: str, seconds: float) -> None:
        if seconds > self.longest_step:
            self.longest_step, self.operation = seconds, operation

    def forget(self) -> None:
        """Forgets all passes so far."""
        self._minutes.clear()
        self.slow_passes = 0

    def worst(self, minutes: int = _MINUTES) -> LongestPass | None:
        """The longest pass of the last minutes, including this one; None if there was none."""
        first = int(self._clock() // 60) - minutes
        return max((lag for minute, lag in self._minutes if minute > first), default=None)


class WatchedSelector(selectors.DefaultSelector):
    """Reports how long the loop has worked in each pass.

    In passes that follow each other at once, most looks at the kernel are left out: each also gives
    the interpreter away, and takes it back when the database's thread has had it.
    """

    def __init__(self, lag: LoopLag) -> None:
        super().__init__()
        self._lag = lag
        self._since: float | None = None
        # Until then, a pass that need not wait does not look.
        self._looked_until = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Selects, and reports the pass that ends with it."""
        now = time.perf_counter()
        if self._since is not None:
            self._lag.passed(now, now - self._since)
        if timeout == 0 and now < self._looked_until:
            self._since = now
            return []
        found = super().select(timeout)
        self._since = time.perf_counter()
        self._looked_until = self._since + _LOOK_SECONDS
        return found


def watched_loop(lag: LoopLag) -> asyncio.AbstractEventLoop:
    """An event loop whose passes are measured."""
    return asyncio.SelectorEventLoop(WatchedSelector(lag))
