"""How many sandboxes of each shape should wait. Pure."""

from collections import Counter, deque
from collections.abc import Callable, Mapping

from orchestrator.sandboxes.shapes import Shape

# Demand that is older is forgotten.
REMEMBERED_SECONDS = 600.0


class WarmDemand:
    """The latest requests for sandboxes; those that wait are what these would have needed."""

    def __init__(self, most: int) -> None:
        """`most` is the number of sandboxes that may wait, of all shapes together."""
        self._most = most
        self._latest: deque[tuple[float, Shape]] = deque(maxlen=most)

    def asked(self, shape: Shape, now: float) -> None:
        """A session needs a sandbox of that shape."""
        self._latest.append((now, shape))

    def renew(self, current: Callable[[Shape], Shape | None]) -> None:
        """Replaces each shape by its current version; None: forgets it."""
        known = [(at, current(shape)) for at, shape in self._latest]
        self._latest.clear()
        self._latest.extend((at, shape) for at, shape in known if shape is not None)

    def wanted(self, now: float, least: Mapping[Shape, int]) -> Counter[Shape]:
        """How many of each shape should wait: `least`, and the latest demand in what is left."""
        self._forget(now)
        wanted = Counter(dict(least))
        demanded: Counter[Shape] = Counter()
        for _, shape in reversed(self._latest):
            demanded[shape] += 1
            if demanded[shape] > wanted[shape] and wanted.total() < self._most:
                wanted[shape] += 1
        return wanted

    def next_change(self, now: float) -> float | None:
        """In how many seconds demand is forgotten; None if there is none."""
        self._forget(now)
        return self._latest[0][0] + REMEMBERED_SECONDS - now if self._latest else None

    def _forget(self, now: float) -> None:
        while self._latest and now - self._latest[0][0] >= REMEMBERED_SECONDS:
            self._latest.popleft()
