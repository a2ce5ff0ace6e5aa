"""What failed when sandboxes were started ahead or taken over, and for how long it counts. Pure."""

from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key")

# The pause after a failure, doubled with each further one of that key.
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 300.0
_MOST_DOUBLINGS = 8


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
