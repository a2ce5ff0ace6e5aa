"""Measures this machine and prints one table of ratios: `python -m tests.bench`.

Paddock and its floor are measured alternately in one run: the ratio can be compared between
machines of different speed, the times can't. A missed target does not fail the run.
"""

import argparse
import asyncio
import os
import sys

import psutil
from docker.errors import DockerException

from images.progress import failure, step
from tests.bench.floors import Floors
from tests.bench.measures import FULL, MEASURES, QUICK, SESSIONS, Effort
from tests.bench.plane import BenchError, measured_plane
from tests.bench.report import Result, print_table


async def bench(effort: Effort) -> list[Result]:
    """All rows of the table."""
    results: list[Result] = []
    async with measured_plane() as plane:
        floors = Floors(await plane.image(), SESSIONS)
        try:
            step(_machine(floors))
            for measure in MEASURES:
                step(f"{measure.__name__.replace('_', ' ')} …")
                results += await measure(plane, floors, effort)
        finally:
            floors.close()
    return results


def _machine(floors: Floors) -> str:
    load = os.getloadavg()[0]
    memory = psutil.virtual_memory().total / 2**30
    version = floors.client.version()["Version"]
    kernel = os.uname().release
    return (
        f"{psutil.cpu_count()} cores, {memory:.0f} GiB, kernel {kernel}, engine {version}, "
        f"load before {load:.1f}"
    )


def main() -> int:
    """Runs the benchmark and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measures, and prints the ratios."
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a rough picture")
    arguments = parser.parse_args()
    try:
        results = asyncio.run(bench(QUICK if arguments.quick else FULL))
    except (BenchError, AssertionError, DockerException, OSError) as error:
        failure(str(error))
        return 1
    print_table(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
