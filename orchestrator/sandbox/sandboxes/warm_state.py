"""What the pool knows: the sandboxes that wait, and what failed before. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from orchestrator.sandbox.sandboxes.parts import Assembly
from orchestrator.state.shapes import Shape

Key = TypeVar("Key")

# The pause after a failure, doubled with each further one of that key.
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 300.0
_MOST_DOUBLINGS = 8


@dataclass(slots=True, eq=False)
class Waiting:
    """A sandbox that waits, since `since` on the pool's clock."""

    shape: Shape
    parts: Assembly
    since: float
    ended: bool = False

    @property
    def fit(self) -> bool:
        """Whether a session may have it."""
        return not self.ended and self.parts.plan.link.connected

    def old(self, now: float, age: float) -> bool:
        """Whether it has waited for at least `age` seconds."""
        return now - self.since >= age


def suitable(waiting: Sequence[Waiting], shape: Shape, now: float, age: float) -> Waiting | None:
    """The oldest that a session with that shape may have."""
    for each in waiting:
        if each.shape == shape and each.fit and not each.old(now, age):
            return each
    return None


def unwanted(
    waiting: Sequence[Waiting], wanted: Counter[Shape], now: float, age: float
) -> list[Waiting]:
    """What is not fit, has waited for `age` seconds, or is more than what is wanted.

    `waiting` begins with the oldest, which go first.
    """
    left = wanted.copy()
    found = []
    for each in reversed(waiting):
        if not each.fit or each.old(now, age) or left[each.shape] <= 0:
            found.append(each)
        else:
            left[each.shape] -= 1
    return found


class _Failed(NamedTuple):
    number: int  # in a row
    until: float


class WarmFailures(Generic[Key]):
    """Failures by key: what fails for one says nothing about another."""

    def __init__(self) -> None:
        self._failed: dict[Key, _Failed] = {}

    def failed(self, key: Key, now: float) -> float:
        """Returns the pause in seconds until it may be tried again."""
        number = self._failed[key].number + 1 if key in self._failed else 1
        pause = min(_FIRST_PAUSE * 2.0 ** min(number - 1, _MOST_DOUBLINGS), _LONGEST_PAUSE)
        self._failed[key] = _Failed(number, now + pause)
        self._forget(now)
        return pause

    def succeeded(self, key: Key) -> None:
        """It works."""
        self._failed.pop(key, None)

    def pause(self, key: Key, now: float) -> float:
        """In how many seconds it may be tried; 0: now."""
        return max(0.0, self._failed[key].until - now) if key in self._failed else 0.0

    def _forget(self, now: float) -> None:
        """Forgets what nobody has tried for long: it may be of an earlier image."""
        for key, failed in list(self._failed.items()):
            if now >= failed.until + _LONGEST_PAUSE:
                del self._failed[key]
