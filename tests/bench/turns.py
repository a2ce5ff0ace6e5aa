"""What turns cost: their programs beside Python, and a hundred reads beside plain ones."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.programs.turns.lisp.limits import LispLimits
from orchestrator.programs.turns.lisp.program import LispProgram
from paddock import Paddock
from tests.bench.plane import BenchError, Plane
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating

_ROUNDS = 100_000
_LOOP = f"(let loop ((i 0) (sum 0)) (if (< i {_ROUNDS}) (loop (+ i 1) (+ sum i)) sum))"
_READS = 100
_FIB = "(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (fib 20)"


def evaluation(rounds: int) -> Iterator[Result]:
    """Seconds of a loop and of recursion, and steps per second."""
    for name, text, floor in (
        (f"a loop of {_ROUNDS} rounds in Lisp", _LOOP, _loop),
        ("(fib 20) in Lisp", _FIB, lambda: _fib(20)),
    ):
        ours, floors, rates = [], [], []
        for _ in range(rounds):
            seconds, steps = _evaluated(text)
            ours.append(seconds)
            rates.append(steps / seconds / 1000)
            floors.append(_timed(floor))
        yield compare(name, ours, "in Python", floors)
        yield Result("steps of it", rates, "k/s", at_least=True)


async def reads(plane: Plane, rounds: int) -> list[Result]:
    """A turn of a hundred reads, each checked and on record, beside the files' own reads."""
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
        files = [Path(directory, f"{number}.txt") for number in range(_READS)]
        for file in files:
            file.write_text(f"{file.name}\n" * 100)
        names = [file.name for file in files]
        async with Paddock(plane.url, plane.key) as paddock:
            session = await paddock.sessions.create(permission_level="low")
            await session.files.upload_dir(directory)

            async def turn() -> list[float]:
                began = time.perf_counter()
                ended = await session.turns.run(
                    operations=[("world.read", {"ref": name}) for name in names]
                )
                if ended.outcome is None or ended.outcome.tag != "ok":
                    raise BenchError(f"the turn came to {ended.outcome}")
                return [time.perf_counter() - began]

            async def requests() -> list[float]:
                began = time.perf_counter()
                for name in names:
                    await session.files.read(name)
                return [time.perf_counter() - began]

            async def plain() -> list[float]:
                work = lambda: [file.read_text() for file in files]  # noqa: E731
                return [await asyncio.to_thread(_timed, work)]

            ours, requested, floor = await alternating(rounds, turn, requests, plain)
            await session.close(purge=True)
    what = f"a turn of {_READS} reads"
    return [
        compare(what, ours, f"{_READS} GET …/files", requested),
        compare(what, ours, "plain reads on the host", floor),
    ]


def _evaluated(text: str) -> tuple[float, int]:
    program = LispProgram(text, operations=frozenset(), limits=LispLimits(steps=10_000_000))
    return _timed(lambda: sum(1 for _ in program.run())), program.steps


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _loop() -> int:
    i = total = 0
    while i < _ROUNDS:
        total += i
        i += 1
    return total


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)
