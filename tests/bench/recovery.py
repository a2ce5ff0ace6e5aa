"""How long a start takes to take over the sandboxes that a killed control plane left."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from images.progress import step
from tests.bench.plane import Plane
from tests.bench.rounds import percentile
from tests.bench.sessions import CREATING, at_once, table

COUNTS = (10, 50, 100)
_ROUNDS = 3
_LEVELS = ("low", "high")
# The longest recovery of 100 sessions.
_TARGET_MS = 5000.0


class Recovered(NamedTuple):
    """A number of sessions: the time of the recovery alone and of the whole start, in ms."""

    sessions: int
    recovery: float
    slowest: float
    start: float
    target: float


async def recovery(plane: Plane, counts: Sequence[int]) -> list[Recovered]:
    """Creates sessions up to each count in turn, and kills the control plane at each."""
    sessions: list[str] = []
    found = []
    for count in counts:
        step(f"recovery of {count} sessions …")
        levels = [_LEVELS[number % 2] for number in range(len(sessions), count)]
        sessions += await at_once(CREATING, [partial(plane.create, each) for each in levels])
        rounds = [await plane.killed_and_restarted() for _ in range(_ROUNDS)]
        assert all(each.sessions == count for each in rounds), rounds
        # Each of them can be used at once.
        await asyncio.gather(*(plane.run(session, ["pwd"]) for session in sessions[::10]))
        took = [each.recovery_ms for each in rounds]
        start = percentile([each.start_ms for each in rounds], 0.5)
        found.append(Recovered(count, percentile(took, 0.5), max(took), start, _TARGET_MS))
    await at_once(CREATING, [partial(plane.close, each) for each in sessions])
    return found


def lines(found: Sequence[Recovered]) -> Iterator[str]:
    """The figures as Markdown."""
    yield from table(Recovered._fields, found)
