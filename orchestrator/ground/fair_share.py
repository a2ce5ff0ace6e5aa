"""Shares the event loop's time between the sandboxes that need much of it."""

import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

# The share of the event loop's time that all sandboxes together get if they need more.
_SHARE = 0.5
# A member waits only after it is this far ahead of its share.
_BURST_SECONDS = 0.1


class FairShare:
    """Determines how long a member must wait for the time that it used.

    A member that uses little never waits. Members that use much share the available time equally.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By member: the time at which its share will have covered its use so far.
        self._paid_at: dict[object, float] = {}

    def spend(self, member: object, seconds: float) -> float:
        """Charges a member for seconds of the event loop's time; returns how long it must wait."""
        now = self._clock()
        self._paid_at = {known: at for known, at in self._paid_at.items() if at > now}
        ahead = now + _BURST_SECONDS
        waiting = sum(at > ahead for known, at in self._paid_at.items() if known is not member)
        paid_at = max(now, self._paid_at.get(member, now)) + seconds * (waiting + 1) / _SHARE
        self._paid_at[member] = paid_at
        return max(0.0, paid_at - ahead)

    def forget(self, member: object) -> None:
        """Removes a member that is gone."""
        self._paid_at.pop(member, None)


class Pace:
    """Allows a burst of `burst` actions, and after that one per `seconds`."""

    def __init__(
        self, seconds: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._ahead = seconds * (burst - 1)
        self._clock = clock
        self._next_at = clock()

    def count(self, times: int = 1) -> None:
        """Counts one action."""
        self._next_at = max(self._clock(), self._next_at) + self._seconds * times

    def wait(self) -> float:
        """The seconds until the next action is allowed."""
        return max(0.0, self._next_at - self._ahead - self._clock())


T = TypeVar("T")


class Metered(Generic[T]):
    """Awaits `work` and measures its steps, without the time of others while it waits."""

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        spent: Callable[[float], object],
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`spent` is called with the seconds of each step."""
        self._work = work
        self._spent = spent
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, T]:
        """Returns or raises what `work` does."""
        steps = self._work.__await__()
        step: Callable[[], Any] = partial(steps.send, None)
        while True:
            began = self._clock()
            try:
                awaited = step()
            except StopIteration as ended:
                result: T = ended.value
                return result
            finally:
                self._spent(self._clock() - began)
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - it is raised where `work` waits
                step = partial(steps.throw, error)
            else:
                step = partial(steps.send, None)
