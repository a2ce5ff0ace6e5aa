"""What an operation of a turn is: a name, typed parameters, and the function that performs it."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from orchestrator.programs.turns.outcome import Outcome, Symbol, Value
from orchestrator.programs.turns.programs import OperationFailed

# How errors call the types of parameters.
_NAMES: Mapping[type, str] = {str: "a string", int: "a whole number", tuple: "a list"}


class Needed(Exception):  # noqa: N818
    """The program can't go on without something: the turn ends with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome.member("description")))
        self.outcome = outcome


class StagedChange(NamedTuple):
    """What an operation proposes: a change of a file, or what a command may have changed."""

    type: Literal["write", "delete", "run"]
    ref: str | None = None
    command: str | None = None


class Done(NamedTuple):
    """What an operation returns to the program, and what is recorded of it.

    `recorded` has JSON values without floats.
    """

    value: Value
    recorded: Mapping[str, Any] = {}
    staged: tuple[StagedChange, ...] = ()


Perform = Callable[..., Awaitable[Done]]


class Parameter(NamedTuple):
    """One argument; without a type, any value. An optional one has a default."""

    name: str
    type: type | None
    optional: bool
    default: Any = None

    def check(self, operation: str, value: Value) -> Value:
        """The value. Raises: OperationFailed if it has another type."""
        if isinstance(value, Symbol) and self.type is str:
            return str(value)
        wrong = isinstance(value, bool) and self.type is int
        if self.type is not None and (wrong or not isinstance(value, self.type)):
            raise OperationFailed(f"{operation}: {self.name} must be {_NAMES[self.type]}")
        return value


@dataclass(frozen=True, slots=True)
class TurnOperation:
    """An operation.

    `query`: it asks about the session itself; no policy refuses that, and it is not recorded.
    `form`: it belongs to a form of the Lisp, so a list of operations can't have it. `permitted_as`
    is the operation whose permission it needs: itself, or one that can do all that it does.
    """

    name: str
    parameters: tuple[Parameter, ...]
    summary: str
    perform: Perform
    query: bool = False
    form: bool = False
    permitted_as: str = ""

    def bind(self, args: tuple[Value, ...]) -> dict[str, Value]:
        """The arguments by name. Raises: OperationFailed."""
        least = sum(not each.optional for each in self.parameters)
        most = len(self.parameters)
        if not least <= len(args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise OperationFailed(f"{self.name} takes {wanted} arguments, not {len(args)}")
        given = zip(self.parameters, args, strict=False)
        return {each.name: each.check(self.name, value) for each, value in given}

    def place(self, args: Mapping[str, Value]) -> tuple[Value, ...]:
        """The arguments by position. Raises: OperationFailed for unknown or missing names."""
        unknown = sorted(args.keys() - {each.name for each in self.parameters})
        if unknown:
            raise OperationFailed(f"{self.name} has no argument {unknown[0]}")
        for each in self.parameters:
            if not each.optional and each.name not in args:
                raise OperationFailed(f"{self.name}: {each.name} must be given")
        given = [number for number, each in enumerate(self.parameters) if each.name in args]
        last = max(given, default=-1) + 1
        return tuple(args.get(each.name, each.default) for each in self.parameters[:last])


def turn_operation(
    name: str,
    perform: Perform,
    *,
    query: bool = False,
    form: bool = False,
    permitted_as: str = "",
) -> TurnOperation:
    """The operation that a function performs; its signature has the parameters.

    The first parameter is the `OperationContext`. The driver gives those that are by keyword only;
    the program gives the others. The docstring is the summary.
    """
    _, *parameters = inspect.signature(perform).parameters.values()
    read = tuple(
        Parameter(each.name, _type(each.annotation), each.default is not each.empty, each.default)
        for each in parameters
        if each.kind is not each.KEYWORD_ONLY
    )
    summary = inspect.getdoc(perform) or ""
    return TurnOperation(
        name, read, summary.partition("\n")[0], perform, query, form, permitted_as or name
    )


def _type(annotation: Any) -> type | None:
    """The type that is checked: X for `X | None`; None for other unions, which take any value."""
    if isinstance(annotation, UnionType):
        others = [each for each in get_args(annotation) if each is not NoneType]
        annotation = others[0] if len(others) == 1 else None
    known = get_origin(annotation) or annotation
    return next((each for each in _NAMES if each is known), None)
