"""Like events in quick succession: above a rate only their number is told. Pure: the time comes in.

Control plane and agent use it alike.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

# Different events of which repeats are known as such.
_MOST_KNOWN = 64


class Repeats(Generic[T]):
    """Decides which events are told one by one, and counts the others.

    As many as `burst` may be told at once, and `rate` in each second after that. Beyond, an event
    like one that was told lately is counted; one like no other always is told.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = 0.0
        # How many of them were counted, and the last one; by what makes them alike.
        self._known: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def take(self, like: str, event: T, now: float) -> bool:
        """Whether this event is to be told by itself; if not, it is counted. `now` in seconds."""
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
        elif like in self._known:
            self._known[like] = self._known[like][0] + 1, event
            return False
        self._remember(like, event)
        return True

    def counted(self) -> list[tuple[str, T, int]]:
        """What was counted and not told: what makes them alike, the last one, and how many."""
        return [(like, event, count) for like, (count, event) in self._known.items() if count]

    def told(self, like: str, number: int) -> None:
        """So many of them are told; of what is told already nothing is left."""
        if like in self._known:
            count, event = self._known[like]
            self._known[like] = max(0, count - number), event

    def drain(self) -> list[tuple[T, int]]:
        """What was counted since the last time: the last one of each, and how many."""
        counted = self.counted()
        for like, _, count in counted:
            self.told(like, count)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return [(event, count) for _, event, count in counted]

    @property
    def crowded(self) -> bool:
        """Whether so many were counted that they are to be told now."""
        return len(self._known) > 2 * _MOST_KNOWN

    def _remember(self, like: str, event: T) -> None:
        count = self._known[like][0] if like in self._known else 0
        self._known[like] = count, event
        self._known.move_to_end(like)
        if len(self._known) > _MOST_KNOWN:
            # What was counted is not forgotten before it is told.
            for old, (counted, _) in self._known.items():
                if not counted:
                    del self._known[old]
                    return
