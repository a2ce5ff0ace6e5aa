"""How fast programs of turns are evaluated, beside the same in Python."""

import time
from collections.abc import Callable, Iterator

from orchestrator.turns.lisp.limits import LispLimits
from orchestrator.turns.lisp.program import LispProgram
from tests.bench.report import Result, compare

_ROUNDS = 100_000
_LOOP = f"(let loop ((i 0) (sum 0)) (if (< i {_ROUNDS}) (loop (+ i 1) (+ sum i)) sum))"
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
