"""What a suspension and a restoration cost, beside the creation of a session."""

import time
from collections.abc import Awaitable, Sequence
from functools import partial

from tests.bench.plane import Plane, measured_plane
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating

_LEVEL = "high"


async def suspension(rounds: int) -> list[Result]:
    """The rows. In this control plane, a second sandbox takes the place of the first."""
    async with measured_plane(PADDOCK_MAX_ACTIVE="1") as plane:
        room, no_room, used, running = await alternating(
            rounds,
            *(partial(turn, plane) for turn in (_create, _give_way, _restore, _run)),
        )
    return [
        compare("create, an idle session gives way", no_room, "create, there is room", room),
        compare("command of a suspended session", used, "create, there is room", room),
        compare("command of a suspended session", used, "command", running),
    ]


async def _create(plane: Plane) -> Sequence[float]:
    session, seconds = await _timed(plane.create(_LEVEL))
    await plane.close(session)
    return [seconds]


async def _give_way(plane: Plane) -> Sequence[float]:
    first = await plane.create(_LEVEL)
    second, seconds = await _timed(plane.create(_LEVEL))
    await plane.close(second)
    await plane.close(first)
    return [seconds]


async def _restore(plane: Plane) -> Sequence[float]:
    first = await plane.create(_LEVEL)
    await plane.close(await plane.create(_LEVEL))
    taken = await plane.exec_true(first, 1)
    await plane.close(first)
    return taken


async def _run(plane: Plane) -> Sequence[float]:
    session = await plane.create(_LEVEL)
    taken = await plane.exec_true(session, 2)
    await plane.close(session)
    return taken[1:]


async def _timed(work: Awaitable[str]) -> tuple[str, float]:
    began = time.perf_counter()
    return await work, time.perf_counter() - began
