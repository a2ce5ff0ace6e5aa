"""Runs Lisp programs with a driver that answers from a table."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from orchestrator.programs.turns.lisp.limits import LispLimits
from orchestrator.programs.turns.lisp.program import LispProgram
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import Breath, Operation, Request

OPERATIONS = frozenset(
    {
        "world.read",
        "llm.complete",
        "assert",
        "fact?",
        "facts",
        "eval",
        "subeval",
        "memo",
        "fixpoint",
    }
)
SESSION_API = frozenset({"session/id", "session/budget-remaining", "budget/report"})

Answer = Callable[[Operation], Any]


class Ran(NamedTuple):
    """A program that ended: its value, and what it asked for, without breaths."""

    value: Value
    requests: list[Request]
    program: LispProgram
    breaths: int


def read(operation: Operation) -> Value:
    """Reads return the name of what is read."""
    return f"text of {operation.args[0]}" if operation.name == "world.read" else None


def returning(given: Any) -> Answer:
    """Every operation returns this."""
    return lambda _operation: given


def run(
    text: str,
    answer: Answer = read,
    *,
    environment: str = "",
    errors: Iterable[Exception] = (),
    answered: int = 0,
    limits: dict[str, int] | None = None,
) -> Ran:
    """Runs a program; each error is thrown instead of an answer, after `answered` answers."""
    program = LispProgram(
        text,
        operations=OPERATIONS,
        session_api=SESSION_API,
        environment=environment,
        limits=LispLimits(**limits or {}),
    )
    left = list(errors)
    running = program.run()
    requests: list[Request] = []
    breaths = 0
    try:
        request = next(running)
        while True:
            if isinstance(request, Breath):
                breaths += 1
                request = running.send(None)
                continue
            requests.append(request)
            if left and len(requests) > answered:
                request = running.throw(left.pop(0))
                continue
            request = running.send(answer(request) if isinstance(request, Operation) else None)
    except StopIteration as end:
        return Ran(end.value, requests, program, breaths)


def value(text: str, answer: Answer = read, **limits: int) -> Value:
    """A program's value."""
    return run(text, answer, limits=limits).value
