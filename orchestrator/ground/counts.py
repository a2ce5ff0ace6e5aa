"""Counts what is open, by whom."""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


class Counts(Generic[_Key]):
    """What is open now, by key: `most` of each. A key of which nothing is open is forgotten."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: Counter[_Key] = Counter()

    def of(self, key: _Key) -> int:
        """How many are open."""
        return self._open[key]

    def total(self) -> int:
        """How many are open, of all keys."""
        return self._open.total()

    @contextmanager
    def taken(self, key: _Key) -> Iterator[bool]:
        """Counts one more until the end of the block; False, without counting, above `most`."""
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
