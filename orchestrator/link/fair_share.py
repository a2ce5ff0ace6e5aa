"""Shares the event loop's time between the sandboxes that ask much of it."""

import time
from collections.abc import Callable

# What all sandboxes together get of the loop's time, when they ask for more.
_SHARE = 0.5
# Nobody waits before it is this far ahead of its share.
_BURST_SECONDS = 0.1


class FairShare:
    """Says how long a member has to wait for what it has used.

    A member that uses little never waits. Those that use much share what there is for all
    of them evenly, however many they are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By member: when its share will have paid for what it has used so far.
        self._paid_at: dict[object, float] = {}

    def spend(self, member: object, seconds: float) -> float:
        """The member has used that much of the loop's time; returns how long it has to wait."""
        now = self._clock()
        self._paid_at = {known: at for known, at in self._paid_at.items() if at > now}
        ahead = now + _BURST_SECONDS
        waiting = sum(at > ahead for known, at in self._paid_at.items() if known is not member)
        paid_at = max(now, self._paid_at.get(member, now)) + seconds * (waiting + 1) / _SHARE
        self._paid_at[member] = paid_at
        return max(0.0, paid_at - ahead)

    def forget(self, member: object) -> None:
        """The member is gone."""
        self._paid_at.pop(member, None)


class Pace:
    """Lets `burst` things happen at once, and after that one in each `seconds`."""

    def __init__(
        self, seconds: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._ahead = seconds * (burst - 1)
        self._clock = clock
        self._next_at = clock()

    def count(self, times: int = 1) -> None:
        """It has happened."""
        self._next_at = max(self._clock(), self._next_at) + self._seconds * times

    def wait(self) -> float:
        """How many seconds it may not happen again."""
        return max(0.0, self._next_at - self._ahead - self._clock())
