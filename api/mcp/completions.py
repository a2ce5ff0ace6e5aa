"""Completion of arguments while a person types: names of tools, and paths of the workspace."""

import re
from typing import Any

from api.mcp.file_resources import TEMPLATE_URI
from api.mcp.messages import INVALID_PARAMS, McpError, object_parameter, text_parameter
from api.mcp.prompts import TOOL, TOOL_MANUAL, names_of_manifests
from api.mcp.tool import Caller
from api.operations.files import list_files
from api.shape.objects import validated
from orchestrator.ground.errors import NotFoundError, PermissionDeniedError
from paddock.contract.files import FileList, ListQuery

# The protocol's.
MOST_VALUES = 100
_MOST_TEXT = 4096
_KINDS = {"ref/prompt": "name", "ref/resource": "uri"}
# What no glob gives a meaning.
_PLAIN = re.compile(r"[A-Za-z0-9_.,=~-]{1,255}")


async def completion(caller: Caller, params: dict[str, Any]) -> dict[str, Any]:
    """The result of `completion/complete`; for what nobody knows, there are no values.

    Raises: McpError for what is no reference or no argument, and the errors of lists of files.
    """
    ref, argument = object_parameter(params, "ref"), object_parameter(params, "argument")
    kind = text_parameter(ref, "type")
    if kind not in _KINDS:
        raise McpError(INVALID_PARAMS, f"type must be {'|'.join(_KINDS)}")
    about = kind, text_parameter(ref, _KINDS[kind]), text_parameter(argument, "name")
    typed = text_parameter(argument, "value")
    values: list[str] = []
    if len(typed) > _MOST_TEXT:
        raise McpError(INVALID_PARAMS, f"value has at most {_MOST_TEXT} characters")
    if about == ("ref/prompt", TOOL_MANUAL, TOOL):
        values = [each for each in names_of_manifests(caller) if each.startswith(typed)]
    elif about == ("ref/resource", TEMPLATE_URI, "path"):
        values = await _paths(caller, typed)
    shown = values[:MOST_VALUES]
    more = len(shown) < len(values)
    return {"completion": {"values": shown, "total": len(values), "hasMore": more}}


async def _paths(caller: Caller, typed: str) -> list[str]:
    """The entries of one directory that begin so; directories end with a slash."""
    directory, slash, start = typed.rpartition("/")
    given = {"path": directory or slash or "."}
    if _PLAIN.fullmatch(start):
        given["glob"], given["depth"] = f"{start}*", "1"
    try:
        async with caller.doing(list_files, query=validated(ListQuery, given)) as answer:
            listed: FileList = answer
    except (NotFoundError, PermissionDeniedError):
        return []  # a path that is not there, or not the session's, has no continuation
    found = []
    for entry in listed.items:
        name = entry.path.rpartition("/")[2]
        if name.startswith(start):
            found.append(f"{directory}{slash}{name}{'/' if entry.type == 'directory' else ''}")
    return sorted(found)
