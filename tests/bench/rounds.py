"""Alternating measurements, so that disturbances affect all sides alike."""

import math
from collections.abc import Awaitable, Callable, Sequence

# One measurement of one side: the seconds that each of its operations took, or another figure.
Side = Callable[[], Awaitable[Sequence[float]]]


async def alternating(rounds: int, *sides: Side) -> list[list[float]]:
    """A B A B …: the measurements of each side, after one round that does not count."""
    measured: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for figures, side in zip(measured, sides, strict=True):
            taken = await side()
            if number:
                figures.extend(taken)
    return measured


def percentile(figures: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: of few figures, the 99th is the largest."""
    ordered = sorted(figures)
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
