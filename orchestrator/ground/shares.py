"""The connections of all sessions of a key."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class ConnectionShares:
    """Counts open connections by key."""

    def __init__(self, most: int) -> None:
        """`most` per key."""
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def taken(self, owner: str) -> Iterator[bool]:
        """Counts a connection while it is open; False if the key has too many."""
        if self._open[owner] >= self._most:
            yield False
            return
        self._open[owner] += 1
        try:
            yield True
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]
