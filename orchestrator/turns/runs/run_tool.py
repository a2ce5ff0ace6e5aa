"""What a tool of a run is: what it takes, the operation that a call is, and what is told. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.models.messages import ModelTool
from orchestrator.tools.input_schemas import input_problem
from orchestrator.turns.outcome import Value, plain
from orchestrator.turns.programs import Operation
from orchestrator.turns.runs.timeline import clipped

# Characters of what one call returns to the model, and of each stream of a command.
_MOST_RESULT = 48 * 1024
_MOST_STREAM = 16 * 1024


class ToolArgumentsError(ValueError):
    """What the model wrote as arguments is none; the message is for the model."""


class ToolArguments(Protocol):
    """What a tool takes."""

    def described(self) -> Mapping[str, Any]:
        """The JSON schema."""

    def given(self, members: dict[str, Any]) -> Any:
        """The arguments of a call. Raises: ToolArgumentsError."""


@dataclass(frozen=True, slots=True)
class SchemaArguments:
    """Members of a JSON object that satisfy a schema."""

    schema: Mapping[str, Any]

    def described(self) -> Mapping[str, Any]:
        """The JSON schema."""
        return self.schema

    def given(self, members: dict[str, Any]) -> dict[str, Any]:
        """The members. Raises: ToolArgumentsError."""
        if (problem := input_problem(self.schema, members)) is not None:
            raise ToolArgumentsError(problem)
        return members


@dataclass(frozen=True, slots=True)
class RunTool:
    """One tool. It is offered if the policy permits one of its operations.

    `operation` makes a call an operation, and `told` makes its value the text for the model.
    `allowed`: whether other rules than the policy's could permit a call.
    """

    name: str
    description: str
    arguments: ToolArguments
    operations: tuple[str, ...]
    operation: Callable[[Any], Operation]
    told: Callable[[Any, Value], str]
    allowed: bool = True

    def shown(self) -> ModelTool:
        """In the form for models."""
        return ModelTool(self.name, self.description, self.arguments.described())

    def read(self, text: str) -> Any:
        """The arguments of a call. Raises: ToolArgumentsError."""
        return self.arguments.given(_object(text))


def result(tool: RunTool, given: Any, value: Value) -> str:
    """What a call returns to the model."""
    return clipped(tool.told(given, value), _MOST_RESULT)


def output_of(_: Any, value: Value) -> str:
    """What is told of a command."""
    found = dict(plain(value))
    shown = {name: clipped(found[name], _MOST_STREAM) for name in ("stdout", "stderr")}
    return json.dumps({"exit_code": found["exit-code"], **shown}, ensure_ascii=False)


def _object(text: str) -> dict[str, Any]:
    """Raises: ToolArgumentsError for anything but one JSON object, each name once."""
    try:
        found = json.loads(text or "{}", parse_constant=_refuse, object_pairs_hook=_once)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeError:
        raise ToolArgumentsError("the arguments have text that is not valid Unicode") from None
    except ToolArgumentsError:
        raise
    except (ValueError, RecursionError):
        raise ToolArgumentsError("the arguments are not JSON") from None
    if not isinstance(found, dict):
        raise ToolArgumentsError("the arguments must be a JSON object")
    return found


def _refuse(name: str) -> None:
    raise ToolArgumentsError(f"the arguments are not JSON: {name}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ToolArgumentsError("the arguments have a name twice")
    return found
