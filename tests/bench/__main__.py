"""Measures this machine and prints two tables of ratios: `python -m tests.bench`.

Paddock, its floors and its peers are measured alternately in one run: the ratio can be compared
between machines of different speed, the times can't. A missed target does not fail the run; with
`--check`, a ratio to a peer that got worse does.
"""

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Sequence
from random import Random, SystemRandom

import psutil
from docker.errors import DockerException

from images.errors import BuildError
from images.progress import failure, step
from scripts.docs import MEASURED, keep
from tests.bench import (
    agents,
    console,
    egress,
    forks,
    gateway,
    growth,
    measures,
    ports,
    proposals,
    recovery,
    runs,
    sessions,
    spawning,
    substitutes,
    suspension,
    turns,
)
from tests.bench.comparison import load as load_comparison
from tests.bench.floors import Floors
from tests.bench.measures import MEASURES, SESSIONS
from tests.bench.peers import check, measuring
from tests.bench.peers.contender import ContenderError
from tests.bench.plane import BenchError, Plane, measured_plane
from tests.bench.report import Result, print_comparison, print_table

_PARTS = ("floors", "peers")
_MORE = (
    *("sessions", "recovery", "egress", "ports", "suspension", "console", "turns"),
    *("runs", "proposals", "spawning", "substitutes", "agents", "forks", "gateway", "growth"),
)
_FAILURES = (BenchError, BuildError, ContenderError, AssertionError, DockerException, OSError)


async def bench(arguments: argparse.Namespace) -> bool:
    """Measures and prints the chosen parts; whether nothing that was to be checked got worse."""
    passed = True
    most = str(2 * max(arguments.counts))
    async with measured_plane(PADDOCK_MAX_ACTIVE=most) as plane:
        floors = Floors(await plane.image(), SESSIONS)
        try:
            machine = _machine(floors)
            step(machine)
            if "floors" in arguments.parts:
                print_table(await _beside_floors(plane, floors, arguments.quick))
            if "peers" in arguments.parts:
                passed = await _beside_peers(plane, floors, machine, arguments)
            if "sessions" in arguments.parts:
                grown = await sessions.growth(plane, floors, arguments.counts)
                print("", *sessions.lines(grown), sep="\n")
            if "recovery" in arguments.parts:
                counts = (10,) if arguments.quick else recovery.COUNTS
                found = await recovery.recovery(plane, counts)
                print("", *recovery.lines(found), sep="\n")
            if "egress" in arguments.parts:
                print_table(await egress.egress(1 if arguments.quick else 3))
            if "ports" in arguments.parts:
                print_table(await ports.ports(1 if arguments.quick else 3))
            if "suspension" in arguments.parts:
                print_table(await suspension.suspension(3 if arguments.quick else 10))
            if "console" in arguments.parts:
                print_table(await console.console(plane, 3 if arguments.quick else 20))
            if "turns" in arguments.parts:
                times = 3 if arguments.quick else 20
                print_table([*turns.evaluation(times), *await turns.reads(plane, times)])
            if "proposals" in arguments.parts:
                times, files = (1, 500) if arguments.quick else (5, 5000)
                print_table(await proposals.proposals(plane, times, files))
            if "runs" in arguments.parts:
                print_table(await runs.runs(3 if arguments.quick else 20))
            if "spawning" in arguments.parts:
                print_table(await spawning.spawning(2 if arguments.quick else 8))
            if "substitutes" in arguments.parts:
                print_table(await substitutes.substitutes(3 if arguments.quick else 20))
            if "agents" in arguments.parts:
                print_table(await agents.agents(3 if arguments.quick else 20))
            if "forks" in arguments.parts:
                times, size = (1, 2**26) if arguments.quick else (3, 2**30)
                print_table(await forks.forks(times, size))
            if "growth" in arguments.parts:
                sizes = growth.QUICK_EVENTS if arguments.quick else growth.EVENTS
                print("", *growth.lines(await growth.growth(sizes)), sep="\n")
            if "gateway" in arguments.parts:
                image, effort = await plane.image(), (100, 1000, 6)
                rounds, streams, made = effort if arguments.quick else (2000, 10_000, 24)
                print_table(await gateway.gateway(image, rounds, streams, made))
        finally:
            floors.close()
    return passed


async def _beside_peers(
    plane: Plane, floors: Floors, machine: str, arguments: argparse.Namespace
) -> bool:
    load, seed = os.getloadavg()[0], arguments.seed
    step(f"contenders in random order, seed {seed}")
    rounds = measuring.QUICK if arguments.quick else measuring.FULL
    comparison = await measuring.compare(plane, floors, machine, rounds, Random(seed))
    print_comparison(comparison)
    verdict = check.check(comparison, load_comparison(MEASURED)) if arguments.check else None
    if verdict is not None:
        print("", *check.lines(verdict, load, psutil.cpu_count() or 1), sep="\n")
    if arguments.keep:
        keep(comparison)
    return verdict is None or verdict.passed


async def _beside_floors(plane: Plane, floors: Floors, quick: bool) -> list[Result]:
    effort = measures.QUICK if quick else measures.FULL
    results: list[Result] = []
    for measure in MEASURES:
        step(f"{measure.__name__.replace('_', ' ')} …")
        results += await measure(plane, floors, effort)
    return results


def _machine(floors: Floors) -> str:
    load = os.getloadavg()[0]
    memory = psutil.virtual_memory().total / 2**30
    version = floors.client.version()["Version"]
    kernel = os.uname().release
    return (
        f"{psutil.cpu_count()} cores, {memory:.0f} GiB, kernel {kernel}, engine {version}, "
        f"Python {platform.python_version()}, load before {load:.1f}"
    )


def _arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measures, and prints the ratios."
    )
    parser.add_argument(
        "parts",
        nargs="*",
        default=_PARTS,
        help="floors, peers (both by default), sessions (how cost grows with their number), "
        "recovery (how long a start takes after a kill), egress (what the way out costs), ports "
        "(what an open port costs), suspension (of idle sessions), console (when it is seen), "
        "turns (how fast their programs are evaluated, and what their reads cost), proposals "
        "(what staging and committing a tree cost), runs (what a tick costs besides its model), "
        "spawning (what a child costs beside a session), substitutes (what older kernels cost), "
        "agents (what the mounted agent costs a start), forks (what forks and templates cost), "
        "gateway (what a cluster of three nodes on this machine costs), or growth (what starts "
        "and pages of audit cost with ten million events; 12 GB)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a rough picture")
    parser.add_argument(
        "--keep", action="store_true", help="put the peers' table and its picture into docs/"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 if a ratio to a peer in docs/performance.json got worse by more than a "
        f"tenth. {check.RULE}".replace("%", "%%"),
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=SystemRandom().randrange(2**32),
        help="of the order of the contenders in each round (default: a new one)",
    )
    parser.add_argument(
        "--counts", nargs="+", type=int, default=sessions.COUNTS, help="the numbers of sessions"
    )
    arguments = parser.parse_args(words)
    for part in arguments.parts:
        if part not in (*_PARTS, *_MORE):
            parser.error(f"{part} is not one of {', '.join((*_PARTS, *_MORE))}")
    if arguments.check and "peers" not in arguments.parts:
        parser.error("--check compares the peers: name that part too")
    return arguments


def main() -> int:
    """Runs the benchmark and returns the exit status."""
    try:
        passed = asyncio.run(bench(_arguments()))
    except _FAILURES as error:
        failure(str(error))
        return 1
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
