"""Limits identical events: above a rate only their number is reported. Pure: time is a parameter.

The control plane and the agent both use this.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

# The number of different events whose repeats are recognised.
_MOST_KNOWN = 64


class Repeats(Generic[T]):
    """Decides which events are reported individually, and counts the others.

    Up to `burst` events may be reported at once, and `rate` more in each second after that. Above
    that rate, an event that was reported recently is only counted; a new event is always reported.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = 0.0
        # For each kind of event: the number counted, and the last one.
        self._known: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def take(self, like: str, event: T, now: float) -> bool:
        """Whether to report this event individually; if not, it is counted. `now` is in seconds."""
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
        elif like in self._known:
            self._known[like] = self._known[like][0] + 1, event
            return False
        self._remember(like, event)
        return True

    def count(self, like: str, event: T) -> None:
        """Counts an event that is not to be reported individually."""
        self._remember(like, event)
        self._known[like] = self._known[like][0] + 1, event

    def counted(self) -> list[tuple[str, T, int]]:
        """The counted events that are not reported yet: kind, last event and number."""
        return [(like, event, count) for like, (count, event) in self._known.items() if count]

    def mark_reported(self, like: str, number: int) -> None:
        """Marks `number` events of a kind as reported."""
        if like in self._known:
            count, event = self._known[like]
            self._known[like] = max(0, count - number), event

    def drain(self) -> list[tuple[T, int]]:
        """Returns and clears the counted events: the last one of each kind and their number."""
        counted = self.counted()
        for like, _, count in counted:
            self.mark_reported(like, count)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return [(event, count) for _, event, count in counted]

    @property
    def crowded(self) -> bool:
        """Whether so many kinds were counted that they must be reported now."""
        return len(self._known) > 2 * _MOST_KNOWN

    def _remember(self, like: str, event: T) -> None:
        count = self._known[like][0] if like in self._known else 0
        self._known[like] = count, event
        self._known.move_to_end(like)
        if len(self._known) > _MOST_KNOWN:
            # A counted event is not dropped before it is reported.
            for old, (counted, _) in self._known.items():
                if not counted:
                    del self._known[old]
                    return
