"""Tools are typed functions: a schema from the signature, checked arguments, text as result."""

import inspect
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import to_json

from paddock.app.agent import AppTool, ToolContext, Workspace
from paddock.contract.tool_arguments import meant

Task = Annotated[str, Field(min_length=1, description="All that the other agent is told.")]
Label = Annotated[str, Field(max_length=128, description="A short name of the task.")]


class ToolInputError(ValueError):
    """The arguments of a call are wrong; the message is for the model."""


def tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    confirm: bool = False,
) -> AppTool:
    """Makes a tool of a typed function, whether it is a coroutine function or not.

    Its docstring is the description. A function that blocks delays all sessions of the process.

    Raises: TypeError for a parameter without a type, or one that takes any number of arguments.
    """
    named = name or function.__name__
    contexts, fields = _parameters(function, named)
    config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    form: type[BaseModel] = create_model(named, __config__=config, **fields)
    schema = _schema(form)

    async def call(arguments: str, context: ToolContext) -> str:
        given = _read(form, schema, arguments)
        values = {each: getattr(given, each) for each in given.model_fields_set}
        result = function(**values, **dict.fromkeys(contexts, context))
        return text_of(await result if inspect.isawaitable(result) else result)

    said = description or inspect.getdoc(function) or ""
    return AppTool(named, said, schema, call, confirm)


def _parameters(function: Callable[..., Any], named: str) -> tuple[list[str], dict[str, Any]]:
    """The parameters that take the context, and the fields of the others."""
    hints = get_type_hints(function, include_extras=True)
    contexts, fields = list[str](), dict[str, Any]()
    for each in inspect.signature(function).parameters.values():
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise TypeError(f"the tool {named} takes {each}: every parameter needs a name")
        if each.name not in hints:
            raise TypeError(f"the tool {named} has no type for {each.name}")
        if hints[each.name] is ToolContext:
            contexts.append(each.name)
        else:
            default = ... if each.default is each.empty else each.default
            fields[each.name] = (hints[each.name], default)
    return contexts, fields


def _schema(form: type[BaseModel]) -> dict[str, Any]:
    schema = form.model_json_schema()
    schema.pop("title", None)
    return schema


def _read(form: type[BaseModel], schema: dict[str, Any], arguments: str) -> BaseModel:
    """Raises: ToolInputError."""
    given = arguments or "{}"
    with suppress(ToolInputError):  # the form says what is wrong
        given = json.dumps(meant(schema, read_object(given)))
    try:
        return form.model_validate_json(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])[:100]
        raise ToolInputError(f"{field or 'the arguments'}: {first['msg']}") from None


def as_tools(given: Iterable[AppTool | Callable[..., Any]]) -> tuple[AppTool, ...]:
    """Makes tools of typed functions; a tool stays as it is."""
    return tuple(each if isinstance(each, AppTool) else tool(each) for each in given)


def by_name(tools: Iterable[AppTool]) -> dict[str, AppTool]:
    """Raises: ValueError for two tools of one name."""
    found: dict[str, AppTool] = {}
    for each in tools:
        if found.setdefault(each.name, each) is not each:
            raise ValueError(f"two tools have the name {each.name}")
    return found


def text_of(result: Any) -> str:
    """A result as text for the model: text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    return to_json(result, fallback=str).decode()


def read_object(arguments: str) -> dict[str, Any]:
    """The arguments of a call as an object. Raises: ToolInputError."""
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        raise ToolInputError("the arguments are not JSON") from None
    if not isinstance(found, dict):
        raise ToolInputError("the arguments must be a JSON object")
    return found


def spawn_tool(workspace: Workspace = "own") -> AppTool:
    """The tool `spawn`, for an app's `tools`. Its children have that workspace."""

    async def spawn(context: ToolContext, task: Task, label: Label | None = None) -> dict[str, str]:
        """Has another agent with the same tools do a task, and waits for its answer."""
        result = await context.spawn(None, task, label=label, workspace=workspace)
        return {"status": result.status, "text": result.text}

    return tool(spawn)
