"""Counts what is open by its owner."""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


class Counts(Generic[_Key]):
    """How much is open now, by key, and at most `most` of each. Keys with none are forgotten."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: Counter[_Key] = Counter()

    def of(self, key: _Key) -> int:
        """How many of that key are open."""
        return self._open[key]

    def total(self) -> int:
        """How many of all keys are open."""
        return self._open.total()

    @contextmanager
    def taken(self, key: _Key) -> Iterator[bool]:
        """Counts one more until the block ends. Yields False, and counts nothing, above `most`."""
        if self._open[key] >= self.most:
            yield False
            return
        self._open[key] += 1
        try:
            yield True
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
