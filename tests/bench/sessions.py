"""How cost grows with the number of idle sessions: memory on the host, and the API's latency."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from images.progress import step
from orchestrator.host.workspace.mounts import mounts_under
from tests.bench.floors import Floors
from tests.bench.plane import Plane
from tests.bench.rounds import percentile

COUNTS = (1, 20, 50, 200)
_MIB = 1024 * 1024
_TIMES = 20
CREATING, _CLOSING = 8, 32
_EXECUTING = 50
_LEVEL = "high"


class Cost(NamedTuple):
    """What a number of idle sessions costs. Memory in MiB, times in ms (medians)."""

    sessions: int
    plane: float
    shims: float
    sandboxes: float
    engine: float
    host: float
    mounts: int
    descriptors: int
    threads: int
    listing: float
    inspecting: float
    executing: float


class Spread(NamedTuple):
    """Commands in several sessions at once: ms by session, and all per second."""

    sessions: int
    fastest: float
    median: float
    slowest: float
    rate: float


class Closing(NamedTuple):
    """Closing many sessions: seconds in all, and another session's command meanwhile, in ms."""

    sessions: int
    seconds: float
    before: float
    meanwhile: float
    slowest: float


class Growth(NamedTuple):
    """All figures of one run."""

    costs: list[Cost]
    spread: Spread
    closing: Closing


async def growth(plane: Plane, floors: Floors, counts: Sequence[int]) -> Growth:
    """Creates sessions up to each count in turn, and closes all but one at the end."""
    sessions: list[str] = []
    free = psutil.virtual_memory().available
    costs = []
    for count in counts:
        step(f"{count} idle sessions …")
        missing = count - len(sessions)
        sessions += await at_once(CREATING, [partial(plane.create, _LEVEL)] * missing)
        costs.append(await _cost(plane, floors, sessions, free))
    step("commands in many sessions at once …")
    spread = await _spread(plane, sessions[:_EXECUTING])
    step("closing them …")
    return Growth(costs, spread, await _closing(plane, sessions))


async def _cost(plane: Plane, floors: Floors, sessions: list[str], free: int) -> Cost:
    containers = [await plane.container(session) for session in sessions]
    own = psutil.Process(plane.pid)
    shims = [psutil.Process(floors.process(name)).parent() for name in containers]
    return Cost(
        sessions=len(sessions),
        plane=_pss(own),
        shims=sum(_pss(shim) for shim in shims if shim is not None),
        sandboxes=sum(map(floors.working_set, containers)) / _MIB,
        engine=sum(map(_pss, _engine())),
        host=(free - psutil.virtual_memory().available) / _MIB,
        mounts=_mounts(plane.state_dir),
        descriptors=own.num_fds(),
        threads=own.num_threads(),
        listing=await _median(plane.list_sessions),
        inspecting=await _median(lambda: plane.inspect(sessions[0])),
        executing=1000 * percentile(await plane.exec_true(sessions[-1], _TIMES), 0.5),
    )


def _mounts(state_dir: Path) -> int:
    """Mounts of sessions and their workspaces, without those that are made in advance."""
    return sum(len(mounts_under(str(state_dir / part))) for part in ("sandboxes", "slots"))


async def _spread(plane: Plane, sessions: list[str]) -> Spread:
    """Every session runs the same number of commands, one after another."""
    began = time.perf_counter()
    taken = await asyncio.gather(*(plane.exec_true(session, _TIMES) for session in sessions))
    seconds = time.perf_counter() - began
    medians = [1000 * percentile(times, 0.5) for times in taken]
    rate = len(sessions) * _TIMES / seconds
    return Spread(
        len(sessions), min(medians), percentile(medians, 0.5), percentile(medians, 0.99), rate
    )


async def _closing(plane: Plane, sessions: list[str]) -> Closing:
    """Closes all but the first, whose commands are timed meanwhile."""
    first, *others = sessions
    before = await plane.exec_true(first, _TIMES)
    meanwhile: list[float] = []

    async def keep_busy() -> None:
        while True:
            meanwhile.extend(await plane.exec_true(first, 1))

    busy = asyncio.create_task(keep_busy())
    began = time.perf_counter()
    try:
        await at_once(_CLOSING, [partial(plane.close, each) for each in others])
        seconds = time.perf_counter() - began
    finally:
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
    during = meanwhile or before
    return Closing(
        len(others),
        seconds,
        1000 * percentile(before, 0.5),
        1000 * percentile(during, 0.5),
        1000 * max(during),
    )


async def at_once(most: int, calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """The results of all calls, at most `most` of them at the same time."""
    turns = asyncio.Semaphore(most)

    async def one(call: Callable[[], Awaitable[Any]]) -> Any:
        async with turns:
            return await call()

    return await asyncio.gather(*map(one, calls))


async def _median(call: Callable[[], Awaitable[Any]]) -> float:
    taken = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began)
    return 1000 * percentile(taken, 0.5)


def _pss(process: psutil.Process) -> float:
    """Memory in MiB, with each shared page divided among those that share it."""
    return float(process.memory_full_info().pss) / _MIB


def _engine() -> Iterator[psutil.Process]:
    for process in psutil.process_iter(["name"]):
        if process.info["name"] in ("dockerd", "containerd"):
            yield process


def lines(growth: Growth) -> Iterator[str]:
    """The figures as Markdown, with columns as wide as needed."""
    yield from table(Cost._fields, growth.costs)
    yield ""
    yield from table(Spread._fields, [growth.spread])
    yield ""
    yield from table(Closing._fields, [growth.closing])


def table(columns: Sequence[str], rows: Sequence[Sequence[float]]) -> Iterator[str]:
    """Figures as Markdown, with columns as wide as needed."""
    texts = [list(columns), *([f"{value:.4g}" for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for number, row in enumerate(texts):
        cells = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"|{'|'.join('-' * (width + 1) + ':' for width in widths)}|"
