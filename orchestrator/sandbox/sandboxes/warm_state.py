"""The state of the warm pool: the sandboxes that wait, and failures. Pure."""

from collections import Counter
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


class WaitingSandboxes(list[Waiting]):
    """The sandboxes that wait, the oldest first. Those that have waited `age` seconds are old."""

    def __init__(self, age: float) -> None:
        super().__init__()
        self._age = age

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of those that a session may have."""
        return [each.shape for each in self if each.fit]

    def suitable(self, shape: Shape, now: float) -> Waiting | None:
        """The oldest that a session with that shape may have."""
        fitting = (each for each in self if each.shape == shape and each.fit)
        return next((each for each in fitting if not self._is_old(each, now)), None)

    def unwanted(self, wanted: Counter[Shape], now: float) -> list[Waiting]:
        """Those that are unfit or old, and the oldest of those that are more than wanted."""
        left = wanted.copy()
        found = []
        for each in reversed(self):
            if not each.fit or self._is_old(each, now) or left[each.shape] <= 0:
                found.append(each)
            else:
                left[each.shape] -= 1
        return found

    def next_old(self, now: float) -> float | None:
        """In how many seconds the next one is old; None if none waits."""
        return self[0].since + self._age - now if self else None

    def _is_old(self, waiting: Waiting, now: float) -> bool:
        return now - waiting.since >= self._age


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
        """Forgets the key's failures."""
        self._failed.pop(key, None)

    def pause(self, key: Key, now: float) -> float:
        """In how many seconds it may be tried; 0: now."""
        return max(0.0, self._failed[key].until - now) if key in self._failed else 0.0

    def _forget(self, now: float) -> None:
        """Forgets what nobody has tried for long: it may be of an earlier image."""
        for key, failed in list(self._failed.items()):
            if now >= failed.until + _LONGEST_PAUSE:
                del self._failed[key]
