"""What a program asks of its driver, and what the driver may throw into it.

A program is a generator without I/O. It yields requests; its driver does what is asked and answers
with `send(value)`, or with `throw(error)` and one of the errors below. The generator returns the
program's value. Other errors that the driver throws pass through the program.
"""

from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

from orchestrator.programs.turns.outcome import Value
from orchestrator.work.models.messages import ModelMessage


class Operation(NamedTuple):
    """One operation by its name, with its arguments by position. The answer is its result."""

    name: str
    args: tuple[Value, ...]


class Enter(NamedTuple):
    """A nested scope begins: `with-budget` or `subeval`. The answer is not used."""

    kind: str
    args: tuple[Value, ...]


class Leave(NamedTuple):
    """The innermost scope ends. The answer is not used."""


class Breath(NamedTuple):
    """Asks for nothing: others may run now. The answer is not used."""


class Tick(NamedTuple):
    """The model of a run is called with the timeline. The answer is its text."""

    number: int


class NewMessage(NamedTuple):
    """A message for the timeline of a run. The answer is not used."""

    message: ModelMessage


class TakeQueued(NamedTuple):
    """What is queued is added to the timeline of a run. The answer is whether anything was."""


class SpawnAll(NamedTuple):
    """Operations `spawn` that are done at the same time, and the calls of tools that ask for them.

    The answer has for each operation its result; or nil, what went wrong, and the rule that refused
    it, if one did: `(value, problem, rule)`.
    """

    operations: tuple[Operation, ...]
    calls: tuple[str, ...]


Request: TypeAlias = Operation | Enter | Leave | Breath | Tick | NewMessage | TakeQueued | SpawnAll
Program: TypeAlias = Generator[Request, Value, Value]
_Made = TypeVar("_Made")


def finished(working: Generator[Breath, object, _Made]) -> _Made:
    """What the generator makes, without letting others run."""
    while True:
        try:
            next(working)
        except StopIteration as end:
            found: _Made = end.value
            return found


class OperationFailed(Exception):  # noqa: N818
    """An operation failed: the program ends with this message and says where it was.

    `rule` is the rule of the session's level that refused it, if one did.
    """

    def __init__(self, message: str, rule: str | None = None) -> None:
        super().__init__(message)
        self.rule = rule


class PolicyViolation(Exception):  # noqa: N818
    """The policy refuses what was asked, by that rule.

    It ends the program and is raised out of it; a run goes on, because its model gets the refusal.
    `remedy` is what to do instead.
    """

    def __init__(self, message: str, rule: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.remedy = remedy


class ScopeExceeded(Exception):  # noqa: N818
    """The budget of a nested scope is used up.

    The program goes on after that scope, whose value is `nonconverged`. It yields no `Leave` for
    this scope and those inside it.
    """

    def __init__(self, scope: int, kind: str) -> None:
        """`scope` counts the scopes that are open from the outermost, which is 1."""
        super().__init__(f"the budget of {kind} is used up")
        self.scope = scope
        self.kind = kind
