"""Alternating measurements, so that disturbances affect all sides alike."""

import math
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

# One measurement of one side: the seconds that each of its operations took, or another figure.
Side = Callable[[], Awaitable[Sequence[float]]]


async def alternating(rounds: int, *sides: Side) -> list[list[float]]:
    """A B A B …: the measurements of each side, after one round that does not count."""
    measured = await by_turns(rounds, sides)
    return [[figure for turn in turns for figure in turn] for turns in measured]


async def by_turns(
    rounds: int, sides: Sequence[Callable[[], Awaitable[T]]], order: Random | None = None
) -> list[list[T]]:
    """What each side said in each round, after one round that does not count.

    `order` shuffles the sides in each round, so that none of them always follows the same one.
    """
    said: list[list[T]] = [[] for _ in sides]
    for number in range(rounds + 1):
        places = list(range(len(sides)))
        if order is not None:
            order.shuffle(places)
        for place in places:
            turn = await sides[place]()
            if number:
                said[place].append(turn)
    return said


def percentile(figures: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: of few figures, the 99th is the largest."""
    ordered = sorted(figures)
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
