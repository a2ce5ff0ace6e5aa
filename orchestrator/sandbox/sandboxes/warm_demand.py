"""How many sandboxes of each shape should wait. Pure."""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from orchestrator.state.shapes import Shape

# Demand that is older is forgotten.
REMEMBERED_SECONDS = 600.0


class _Asked(NamedTuple):
    at: float
    account: str
    shape: Shape


class WarmDemand:
    """The latest requests for sandboxes, of which each account has no more than its share.

    Shapes get places in proportion to their requests. A sandbox that waits keeps its place unless
    another shape is requested clearly more often, so shapes that are requested alternately do not
    displace each other.
    """

    def __init__(self, most: int) -> None:
        """`most` is the number of sandboxes that may wait, of all shapes together."""
        self._most = most
        self._latest: deque[_Asked] = deque()

    def asked(self, shape: Shape, account: str, now: float) -> None:
        """A session of that account needs a sandbox of that shape."""
        self._latest.append(_Asked(now, account, shape))
        remembered = 2 * self._most
        share = max(1, remembered // len({asked.account for asked in self._latest}))
        held: Counter[str] = Counter()
        kept = []
        for asked in reversed(self._latest):  # the latest first
            held[asked.account] += 1
            if held[asked.account] <= share:
                kept.append(asked)
        self._latest = deque(reversed(kept[:remembered]))

    def renew(self, current: Callable[[Shape], Shape | None]) -> None:
        """Replaces each shape by its current version; None: forgets it."""
        known = [(asked, current(asked.shape)) for asked in self._latest]
        self._latest = deque(
            asked._replace(shape=shape) for asked, shape in known if shape is not None
        )

    def forget(self, shape: Shape) -> None:
        """Forgets the requests for a shape."""
        self._latest = deque(asked for asked in self._latest if asked.shape != shape)

    def wanted(
        self, now: float, least: Mapping[Shape, int], waiting: Mapping[Shape, int]
    ) -> Counter[Shape]:
        """How many of each shape should wait: `least`, and the demand in what is left of `most`.

        `waiting` is how many do.
        """
        self._forget_old(now)
        requests = Counter(asked.shape for asked in self._latest)
        last = {asked.shape: place for place, asked in enumerate(self._latest)}

        def weight(shape: Shape, number: int) -> tuple[float, bool, int]:
            waits = number <= waiting.get(shape, 0)
            return requests[shape] / number + waits, waits, last[shape]

        places = [
            (weight(shape, number), shape)
            for shape, count in requests.items()
            for number in range(least.get(shape, 0) + 1, count + 1)
        ]
        places.sort(key=lambda place: place[0], reverse=True)
        wanted = Counter(dict(least))
        wanted.update(shape for _, shape in places[: max(0, self._most - wanted.total())])
        return wanted

    def next_change(self, now: float) -> float | None:
        """In how many seconds demand is forgotten; None if there is none."""
        self._forget_old(now)
        return self._latest[0].at + REMEMBERED_SECONDS - now if self._latest else None

    def _forget_old(self, now: float) -> None:
        while self._latest and now - self._latest[0].at >= REMEMBERED_SECONDS:
            self._latest.popleft()
