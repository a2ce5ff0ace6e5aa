"""Tools of runs: their arguments, the operation that a call becomes, and its result. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.programs.turns.outcome import Value, plain
from orchestrator.programs.turns.programs import Operation
from orchestrator.rules.tools.schemas import input_problem
from orchestrator.work.models.messages import ModelTool
from paddock.contract.tool_arguments import meant

# Characters of what one call returns to the model, and of each stream of a command.
_MOST_RESULT = 48 * 1024
_MOST_STREAM = 16 * 1024
_REST = ": read_output returns them"


class ToolArgumentsError(ValueError):
    """The model's text is no valid arguments; the message is for the model."""


class ToolArguments(Protocol):
    """The arguments that a tool takes."""

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
        members = meant(self.schema, members)
        if (problem := input_problem(self.schema, members)) is not None:
            raise ToolArgumentsError(problem)
        return members


@dataclass(frozen=True, slots=True)
class RunTool:
    """One tool. It is offered if the policy permits one of its operations.

    `operation` makes a call an operation, and `as_text` makes its value the text for the model.
    `allowed`: whether other rules than the policy's could permit a call. `also` is another name by
    which it may be called. `any_command`: only levels that allow any command permit a call.
    """

    name: str
    description: str
    arguments: ToolArguments
    operations: tuple[str, ...]
    operation: Callable[[Any], Operation]
    as_text: Callable[[Any, Value], str]
    allowed: bool = True
    also: str = ""
    any_command: bool = False

    def shown(self) -> ModelTool:
        """In the form for models."""
        return ModelTool(self.name, self.description, self.arguments.described())

    def read(self, text: str) -> Any:
        """The arguments of a call. Raises: ToolArgumentsError."""
        return self.arguments.given(_object(text))


def result(tool: RunTool, given: Any, value: Value) -> str:
    """What a call returns to the model."""
    return shortened(tool.as_text(given, value), _MOST_RESULT)


def shortened(text: str, most: int, where: str = "") -> str:
    """The text, or its beginning and its end; `where` says how to get what is between."""
    if len(text) <= most:
        return text
    half = most // 2
    cut = len(text) - 2 * half
    return f"{text[:half]}\n[{cut} characters are left out here{where}]\n{text[-half:]}"


def output_of(_: Any, value: Value) -> str:
    """A command's result for the model: both ends of each stream, and how to read the rest."""
    found = dict(plain(value))
    streams = {name: found[name] for name in ("stdout", "stderr")}
    shown = {name: shortened(text, _MOST_STREAM, _REST) for name, text in streams.items()}
    members = {"exit_code": found["exit-code"], **shown}
    if found["truncated"] or shown != streams:
        members |= {"command_id": found["command-id"], "output_bytes": found["output-bytes"]}
    return json.dumps(members, ensure_ascii=False)


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
