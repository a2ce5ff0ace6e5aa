"""What a child costs beside a session that nobody has spawned, and the end of ten levels."""

import time
from collections.abc import Sequence
from functools import partial

from paddock import Paddock
from tests.bench.plane import measured_plane
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating

_LEVEL = "low"
_LEVELS = 10


async def spawning(rounds: int) -> list[Result]:
    """The rows, without sandboxes that wait."""
    async with measured_plane() as plane, Paddock(plane.url, plane.key) as paddock:
        created, spawned, ended, closed = await alternating(
            rounds, *(partial(turn, paddock) for turn in (_create, _spawn, _end_ten, _close_eleven))
        )
    return [
        compare("spawn a child", spawned, "create a session", created),
        compare("end ten levels of children", ended, "close eleven sessions, one by one", closed),
    ]


async def _create(paddock: Paddock) -> Sequence[float]:
    began = time.perf_counter()
    session = await paddock.sessions.create(permission_level=_LEVEL)
    taken = time.perf_counter() - began
    await session.close(purge=True)
    return [taken]


async def _spawn(paddock: Paddock) -> Sequence[float]:
    async with await paddock.sessions.create(permission_level=_LEVEL) as parent:
        began = time.perf_counter()
        await parent.spawn()
        taken = time.perf_counter() - began
        await parent.close(purge=True)
    return [taken]


async def _end_ten(paddock: Paddock) -> Sequence[float]:
    root = await paddock.sessions.create(permission_level=_LEVEL)
    lowest = root
    for _ in range(_LEVELS):
        lowest = await lowest.spawn()
    began = time.perf_counter()
    await root.close(purge=True)
    return [time.perf_counter() - began]


async def _close_eleven(paddock: Paddock) -> Sequence[float]:
    sessions = [await paddock.sessions.create(permission_level=_LEVEL) for _ in range(_LEVELS + 1)]
    began = time.perf_counter()
    for session in sessions:
        await session.close(purge=True)
    return [time.perf_counter() - began]
