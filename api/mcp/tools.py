"""All tools of a session, and calls of them."""

from typing import Any

from api.mcp.code_tools import CODE_TOOLS
from api.mcp.command_tools import COMMAND_TOOLS
from api.mcp.file_tools import FILE_TOOLS
from api.mcp.manifest_tools import OfferedTool, manifest_tool, offered_tools
from api.mcp.messages import INVALID_PARAMS, McpError, object_parameter, text_parameter
from api.mcp.results import RefusedError, ToolResult, refused
from api.mcp.shell_tools import SHELL_TOOLS
from api.mcp.tool import Caller, McpTool
from orchestrator.ground.log_context import asking_as
from orchestrator.ground.serving.failures import failed

_TOOLS = (*COMMAND_TOOLS, *CODE_TOOLS, *SHELL_TOOLS, *FILE_TOOLS)
_NAMES = frozenset(tool.name for tool in _TOOLS)


def all_tools(caller: Caller) -> list[McpTool]:
    """The tools that the session could be allowed to use at present."""
    allowed = (each for each in tools_of_manifests(caller) if each.listed.allowed)
    return [*_TOOLS, *map(manifest_tool, allowed)]


def tools_of_manifests(caller: Caller) -> list[OfferedTool]:
    """Those of the operator's manifests, which don't replace ours; also those refused here."""
    return offered_tools(caller.context, caller.session_tools, _NAMES)


async def call_tool(caller: Caller, params: dict[str, Any]) -> ToolResult:
    """What a tool returns; a refusal or a failure is a result that says so. Raises: McpError.

    A call of a tool that the session may not use is refused, and recorded, like one over HTTP.
    """
    name, given = text_parameter(params, "name"), object_parameter(params, "arguments")
    tool = _named(caller, name)
    try:
        with asking_as(f"mcp tools/call {tool.name}"):
            result: ToolResult = await tool.run(caller, given)
    except RefusedError as error:
        return refused(error.problem)
    except Exception as error:  # noqa: BLE001 - the model learns of it, and the log has the rest
        return refused(caller.context.problem(failed(error)))
    return result


def _named(caller: Caller, name: str) -> McpTool:
    own = next((each for each in _TOOLS if each.name == name), None)
    if own is not None:
        return own
    offered = tools_of_manifests(caller)
    found = next((each for each in offered if name in (each.name, each.listed.name)), None)
    if found is None:
        raise McpError(INVALID_PARAMS, f"there is no tool {name[:128]}")
    return manifest_tool(found)
