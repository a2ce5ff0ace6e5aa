"""The protocol's requests: which there are, and their results."""

from typing import Any

from api.mcp.code_tools import CODE_TOOLS
from api.mcp.command_tools import COMMAND_TOOLS
from api.mcp.conversation import Conversation
from api.mcp.file_tools import FILE_TOOLS
from api.mcp.manifest_tools import manifest_tools
from api.mcp.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    McpError,
    object_parameter,
    text_parameter,
)
from api.mcp.resources import RESOURCES, read_resource
from api.mcp.results import RefusedError, ToolResult, refused
from api.mcp.shell_tools import SHELL_TOOLS
from api.mcp.tool import Caller, McpTool, Tell
from api.shape.context import Context
from api.shape.failures import failed
from api.shape.version import VERSION
from orchestrator.state.session import Session
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.terminals import Terminals

_TOOLS = (*COMMAND_TOOLS, *CODE_TOOLS, *SHELL_TOOLS, *FILE_TOOLS)


def greeting(session: Session, version: str) -> dict[str, Any]:
    """The result of `initialize`."""
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": True}, "resources": {}},
        "serverInfo": {"name": "paddock", "title": "Paddock", "version": VERSION},
        "instructions": _instructions(session),
    }


def _instructions(session: Session) -> str:
    level = session.level
    allowed = "any command" if level.commands is None else ", ".join(sorted(level.commands))
    return (
        f"The tools work in the sandbox of session {session.id}, whose files are in "
        f"{session.workspace_path}. "
        f"Its permission level is {level.name}, which allows: {allowed}. Every call is decided by "
        "policy and recorded; a refusal names its rule and what to do instead."
    )


async def result_of(
    context: Context,
    conversation: Conversation,
    method: str,
    params: dict[str, Any],
    tell: Tell,
    session_tools: SessionTools,
    terminals: Terminals,
) -> dict[str, Any]:
    """The result of any other request. Raises: McpError, and the errors of the operations."""
    caller = Caller(context, conversation, tell, session_tools, terminals)
    match method:
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [tool.raw for tool in all_tools(context, session_tools)]}
        case "tools/call":
            called = await _call(caller, params)
            return called.raw
        case "resources/list":
            return {"resources": [each.raw for each in RESOURCES]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "resources/read":
            return await read_resource(caller, text_parameter(params, "uri"))
    raise McpError(METHOD_NOT_FOUND, f"there is no method {method}")


def all_tools(
    context: Context, session_tools: SessionTools, *, refused: bool = False
) -> list[McpTool]:
    """The tools of the session at present; a manifest does not replace one of ours.

    With `refused`, also those that the session may not use.
    """
    own = {tool.name for tool in _TOOLS}
    return [*_TOOLS, *manifest_tools(context, session_tools, own, refused=refused)]


async def _call(caller: Caller, params: dict[str, Any]) -> ToolResult:
    """What a tool returns; a refusal or a failure is a result that says so."""
    name, given = text_parameter(params, "name"), object_parameter(params, "arguments")
    tool = next((each for each in _TOOLS if each.name == name), None)
    if tool is None:
        tools = all_tools(caller.context, caller.session_tools, refused=True)
        tool = next((each for each in tools if name in (each.name, each.also)), None)
    if tool is None:
        raise McpError(INVALID_PARAMS, f"there is no tool {name[:128]}")
    try:
        result: ToolResult = await tool.run(caller, given)
    except RefusedError as error:
        return refused(error.problem)
    except Exception as error:  # noqa: BLE001 - the model learns of it, and the log has the rest
        return refused(caller.context.problem(failed(error)))
    return result
