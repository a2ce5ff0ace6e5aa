"""What failed when sandboxes were started ahead or taken over, and for how long it counts. Pure."""

from typing import NamedTuple

from orchestrator.sandboxes.shapes import Shape

# The pause after a failure, doubled with each further one of that shape.
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 300.0
_MOST_DOUBLINGS = 8
_MOST_TAKE_OVERS = 3


class _Failed(NamedTuple):
    number: int  # in a row
    until: float


class WarmFailures:
    """Failures of starts by shape, because one shape's say nothing about another's.

    A take-over fails after a start that succeeded, so no start makes up for it.
    """

    def __init__(self) -> None:
        self._starts: dict[Shape, _Failed] = {}
        self._take_overs = 0

    def start_failed(self, shape: Shape, now: float) -> float:
        """Returns the pause in seconds until that shape may be started again."""
        number = self._starts[shape].number + 1 if shape in self._starts else 1
        pause = min(_FIRST_PAUSE * 2.0 ** min(number - 1, _MOST_DOUBLINGS), _LONGEST_PAUSE)
        self._starts[shape] = _Failed(number, now + pause)
        self._forget(now)
        return pause

    def started(self, shape: Shape) -> None:
        """The shape can be started."""
        self._starts.pop(shape, None)

    def pause(self, shape: Shape, now: float) -> float:
        """In how many seconds the shape may be started; 0: now."""
        return max(0.0, self._starts[shape].until - now) if shape in self._starts else 0.0

    def take_over_failed(self) -> None:
        """A sandbox could not be taken over."""
        self._take_overs += 1

    def taken_over(self) -> None:
        """A sandbox was taken over."""
        self._take_overs = 0

    @property
    def stopped(self) -> bool:
        """Whether take-overs fail so often that nothing should be started ahead any more."""
        return self._take_overs >= _MOST_TAKE_OVERS

    def _forget(self, now: float) -> None:
        """Forgets shapes that nobody has tried for long: they may be of earlier images."""
        for shape, failed in list(self._starts.items()):
            if now >= failed.until + _LONGEST_PAUSE:
                del self._starts[shape]
