"""The measurements: each function gives one or more rows of the table."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from orchestrator.work.terminals.terminal import SETTLE_MS
from tests.bench.confinement import confinement_costs
from tests.bench.floors import EXPECT_LOOP, FORK_LOOP, SPAWN_LOOP, Floors, loop_seconds
from tests.bench.memory import Resident, reset_peak, resident
from tests.bench.plane import BenchError, Plane, measured_plane
from tests.bench.reads import manifest_costs
from tests.bench.report import Result, compare
from tests.bench.rounds import Side, alternating, percentile

SESSIONS = 8
_MIB = 1024 * 1024
_FILE_BLOCKS = 100  # of 1 MB
_BLOCK_BYTES = 1_000_000
# Chunks in transit and the allocator's slack; a file held in memory would take 100 MB.
_FLAT_MB = 10
# Decisions, two durable records and HTTP, in addition to the settle time.
_ADDED_MS = 5


@dataclass(frozen=True, slots=True)
class Effort:
    """The number of measurements."""

    creates: int
    exec_rounds: int
    parallel_rounds: int


FULL = Effort(creates=12, exec_rounds=20, parallel_rounds=8)
QUICK = Effort(creates=3, exec_rounds=4, parallel_rounds=2)


async def cold_create(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """A session without a network, compared with a bare container with the same limits."""
    return [
        await _cold_create(plane, floors, effort, "medium", 1.25),
        await _cold_create(plane, floors, effort, "low", None),
    ]


async def _cold_create(
    plane: Plane, floors: Floors, effort: Effort, level: str, target: float | None
) -> Result:
    session = await plane.create(level)
    limits = (await plane.inspect(session))["sandbox"]["limits"]
    await plane.close(session)

    async def ours() -> list[float]:
        began = time.perf_counter()
        session = await plane.create(level)
        taken = time.perf_counter() - began
        await plane.close(session)
        return [taken]

    async def floor() -> list[float]:
        return [await asyncio.to_thread(floors.create, limits)]

    seconds, bare = await alternating(effort.creates, ours, floor)
    what = f"cold create, {level} ({limits['cpus']:g} cpu)"
    return compare(what, seconds, "docker create+start", bare, at_most=target)


async def warm_create(_plane: Plane, _floors: Floors, effort: Effort) -> list[Result]:
    """A session that finds a sandbox waiting, compared with one that does not.

    Uses a control plane of its own, so that what waits disturbs no other measurement.
    """
    level = "low"
    waiting = {"PADDOCK_WARM_SANDBOXES": "1", "PADDOCK_WARM_LEAST": json.dumps({level: 1})}
    async with measured_plane(**waiting) as plane:

        async def create(**limits: int) -> list[float]:
            await plane.waits(level)
            began = time.perf_counter()
            session = await plane.create(level, **limits)
            taken = time.perf_counter() - began
            start = (await plane.inspect(session))["sandbox"]["start"]
            if start != ("cold" if limits else "warm"):
                raise BenchError(f"it was a {start} start")
            await plane.close(session)
            return [taken]

        # Nothing waits with a session's own limits.
        warm, cold = await alternating(effort.creates, create, partial(create, pids=63))
    return [compare(f"warm create, {level}", warm, "cold create", cold, at_most=0.1)]


async def exec_latency(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """`true` over HTTP with a durable record, compared with running it without Paddock."""
    async with _sessions(plane, 1) as [session]:
        container = await plane.container(session)

        def loop(program: str) -> Side:
            async def turn() -> list[float]:
                argv = ["python3", "-I", "-S", "-c", program, "10"]
                return loop_seconds(await plane.run(session, argv))

            return turn

        async def ours() -> list[float]:
            return await plane.exec_true(session, 10)

        async def engine() -> list[float]:
            return await asyncio.to_thread(floors.exec_true, container, 2)

        seconds, forked, spawned, engine_seconds = await alternating(
            effort.exec_rounds, ours, loop(FORK_LOOP), loop(SPAWN_LOOP), engine
        )
    what = "exec true"
    return [
        compare(what, seconds, "fork+exec+wait in the container", forked, at_most=6),
        compare(what, seconds, "posix_spawn+wait in the container", spawned),
        compare(what, seconds, "docker exec", engine_seconds, faster=20),
    ]


async def exec_throughput(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """`true` in several sessions at once, compared with `docker exec` in the same."""
    async with _sessions(plane, SESSIONS) as sessions:
        containers = [await plane.container(session) for session in sessions]

        async def ours() -> list[float]:
            return [await plane.exec_rate(sessions, 25)]

        async def engine() -> list[float]:
            return [await asyncio.to_thread(floors.exec_rate, containers, 2)]

        rates, engine_rates = await alternating(effort.parallel_rounds, ours, engine)
        used = [floors.working_set(container) for container in containers]
    return [
        Result(
            f"exec true, {SESSIONS} sessions at once",
            rates,
            "/s",
            "docker exec",
            engine_rates,
            ratio=percentile(rates, 0.5) / percentile(engine_rates, 0.5),
            target=15,
            at_least=True,
        ),
        _memory_row("working set after that", used),
    ]


async def idle_memory(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """The memory of a session that has only been created."""
    async with _sessions(plane, 4, level="low") as sessions:
        containers = [await plane.container(session) for session in sessions]
        used = [floors.working_set(container) for container in containers]
    return [_memory_row("working set, idle session", used, target=12)]


async def interaction_latency(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """A line to an interactive tool over HTTP, compared with the tool alone on its terminal."""
    async with _sessions(plane, 1) as [session]:
        terminal = await plane.open_tool(session, "python3")

        async def ours() -> list[float]:
            return await plane.lines(terminal, "python3.calculate", "6 * 7", 10)

        async def floor() -> list[float]:
            argv = ["python3", "-I", "-S", "-c", EXPECT_LOOP, "10"]
            return loop_seconds(await plane.run(session, argv))

        seconds, alone = await alternating(effort.exec_rounds, ours, floor)
    added = 1000 * (percentile(seconds, 0.5) - percentile(alone, 0.5))
    return [
        compare("a tool's line", seconds, "expect in the container", alone),
        Result("  added to that", [added], "ms", target=_ADDED_MS + SETTLE_MS),
    ]


async def key_echo(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """A key pressed in a live shell, to its echo; the key is recorded before it is typed."""
    async with _sessions(plane, 1) as [session], plane.typing(session) as keys:
        seconds, null = await alternating(
            effort.exec_rounds, partial(keys, 20), partial(plane.null_calls, 20)
        )
    return [compare("a key's echo in a shell", seconds, "null HTTP call", null, at_most=3)]


async def transfer(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """Writing and reading 100 MB, and the memory that this takes."""
    block = os.urandom(_BLOCK_BYTES)
    async with _sessions(plane, 1) as [session]:
        pids = {
            "sandbox agent": floors.process(await plane.container(session)),
            "control plane": plane.pid,
        }
        before = {name: resident(pid) for name, pid in pids.items()}
        for pid in pids.values():
            reset_peak(pid)
        wrote = await plane.upload(session, "file", block, _FILE_BLOCKS)
        read = await plane.download(session, "file", block, _FILE_BLOCKS)
        after = {name: resident(pid) for name, pid in pids.items()}
    return [
        Result("write 100 MB", [_FILE_BLOCKS / wrote], "MB/s"),
        Result("read 100 MB", [_FILE_BLOCKS / read], "MB/s"),
        *(_growth_row(name, before[name], after[name]) for name in pids),
    ]


async def confinement(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """The agent's own share of `true`, with and without the kernel's confinement."""
    image = await plane.image()
    rounds = 15 * effort.exec_rounds
    return await asyncio.to_thread(confinement_costs, floors.client, image, rounds)


async def manifest(plane: Plane, floors: Floors, effort: Effort) -> list[Result]:
    """What opens and executions take in a session that may read its manifest's files only."""
    image = await plane.image()
    return await asyncio.to_thread(manifest_costs, floors.client, image, 5 * effort.exec_rounds)


MEASURES = (
    cold_create,
    warm_create,
    exec_latency,
    interaction_latency,
    key_echo,
    confinement,
    manifest,
    exec_throughput,
    transfer,
    idle_memory,
)


def _growth_row(name: str, before: Resident, after: Resident) -> Result:
    """The growth of resident memory; the floor is the size at the beginning."""
    growth = max(0, after.peak - before.now) / 1e6
    return Result(
        f"  peak growth, {name}", [growth], "MB", "before", [before.now / 1e6], target=_FLAT_MB
    )


def _memory_row(what: str, used: Sequence[int], target: float | None = None) -> Result:
    return Result(what, [value / _MIB for value in used], "MiB", target=target)


@asynccontextmanager
async def _sessions(plane: Plane, count: int, level: str = "high") -> AsyncIterator[list[str]]:
    """New sessions, closed at the end."""
    sessions: list[str] = []
    try:
        for _ in range(count):
            sessions.append(await plane.create(level))
        yield sessions
    finally:
        for session in sessions:
            await plane.close(session)
