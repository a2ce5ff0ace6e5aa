"""What a manifest costs a command: opens and executions with and without a broker, alternating."""

from collections.abc import Sequence
from typing import Any

from docker import APIClient

from tests.bench.report import Result
from tests.support import reading

# Prints the nanoseconds of each of N times.
_OPENS = """
import os, sys, time
path, number = sys.argv[1], int(sys.argv[2])
for _ in range(number):
    began = time.perf_counter_ns()
    for _ in range(100):
        os.close(os.open(path, os.O_RDONLY))
    print((time.perf_counter_ns() - began) // 100)
"""
_EXECS = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    began = time.perf_counter_ns()
    os.waitpid(os.posix_spawn("/usr/bin/true", ["true"], {}), 0)
    print(time.perf_counter_ns() - began)
"""
_SETTINGS = {
    "level": "high",
    "files": {"listed": "x" * 100},
    "entries": ["listed"],
    "directories": ["."],
}


def manifest_costs(client: APIClient, image: str, rounds: int) -> list[Result]:
    """The time of an open and close in the workspace and the image, and that of an execution."""
    programs = {
        "open and close a listed file": [_OPENS, "/workspace/listed", str(rounds)],
        "open and close a file of the image": [_OPENS, "/usr/bin/true", str(rounds)],
        "`true` from a command": [_EXECS, str(rounds)],
    }
    commands = [["python3", "-c", *words] for words in programs.values()]
    with_one = _taken(client, image, commands, mode="hard_fail")
    without = _taken(client, image, commands, mode=None)
    return [
        _row(f"{what}, with a manifest", ours, theirs)
        for what, ours, theirs in zip(programs, with_one, without, strict=True)
    ]


def _row(what: str, ours: Sequence[float], theirs: Sequence[float]) -> Result:
    return Result(what, ours, "µs", "without", theirs)


def _taken(
    client: APIClient, image: str, commands: list[list[str]], **members: Any
) -> list[list[float]]:
    """Microseconds, by command."""
    given = {**_SETTINGS, **members, "commands": commands}
    found = reading.run(client, image, given)
    for exit_code, printed in found["outcomes"]:
        if exit_code != 0:
            raise RuntimeError(f"the manifest's cost could not be measured: {printed[-500:]}")
    return [[int(line) / 1000 for line in printed.split()] for _, printed in found["outcomes"]]
