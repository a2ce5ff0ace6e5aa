"""How sure a ratio of two medians is: an interval by the bootstrap."""

from collections.abc import Sequence
from random import Random

from tests.bench.rounds import percentile

# How often a run is drawn again, and the share of the drawn ratios within the interval.
_TIMES = 400
_SHARE = 0.95
# Of fewer turns, hardly anything differs between the draws, whatever the noise was.
LEAST_TURNS = 3

# The figures of one side in each of its turns.
Turns = Sequence[Sequence[float]]


def ratio_interval(above: Turns, below: Turns, order: Random) -> tuple[float, float] | None:
    """The lower and the upper end for the ratio of the medians; None of too few turns.

    Whole turns are drawn, because what disturbs one figure of a turn disturbs its neighbours too.
    Both sides draw the same rounds if they have equally many: a round that was slow for both says
    nothing about the ratio.
    """
    if min(len(above), len(below)) < LEAST_TURNS:
        return None
    ratios = []
    for _ in range(_TIMES):
        rounds = _drawn(len(above), order)
        other = rounds if len(below) == len(above) else _drawn(len(below), order)
        ratios.append(_median(above, rounds) / _median(below, other))
    outside = (1 - _SHARE) / 2
    return percentile(ratios, outside), percentile(ratios, 1 - outside)


def _drawn(count: int, order: Random) -> list[int]:
    return order.choices(range(count), k=count)


def _median(turns: Turns, rounds: Sequence[int]) -> float:
    return percentile([figure for number in rounds for figure in turns[number]], 0.5)
