"""The protocol's requests: which there are, and their results."""

from typing import Any

from api.mcp.completions import completion
from api.mcp.conversation import Conversation
from api.mcp.messages import METHOD_NOT_FOUND, McpError, text_parameter
from api.mcp.prompts import PROMPTS, prompt
from api.mcp.resources import RESOURCES, TEMPLATES, read_resource, subscribe, unsubscribe
from api.mcp.tool import Caller, Tell
from api.mcp.tools import all_tools, call_tool
from api.shape.context import Context
from api.shape.version import VERSION
from orchestrator.state.session import Session
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.terminals import Terminals

_CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}


def greeting(session: Session, version: str) -> dict[str, Any]:
    """The result of `initialize`."""
    return {
        "protocolVersion": version,
        "capabilities": _CAPABILITIES,
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
            return {"tools": [each.raw for each in all_tools(caller)]}
        case "tools/call":
            called = await call_tool(caller, params)
            return called.raw
        case "prompts/list":
            return {"prompts": [each.raw for each in PROMPTS]}
        case "prompts/get":
            return prompt(caller, params)
        case "completion/complete":
            return await completion(caller, params)
        case "logging/setLevel":
            conversation.log.set(text_parameter(params, "level"))
            return {}
    return await _of_resources(caller, method, params)


async def _of_resources(caller: Caller, method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "resources/list":
            return {"resources": [each.raw for each in RESOURCES]}
        case "resources/templates/list":
            return {"resourceTemplates": list(TEMPLATES)}
        case "resources/read":
            return await read_resource(caller, text_parameter(params, "uri"))
        case "resources/subscribe":
            return await subscribe(caller, text_parameter(params, "uri"))
        case "resources/unsubscribe":
            return unsubscribe(caller, text_parameter(params, "uri"))
    raise McpError(METHOD_NOT_FOUND, f"there is no method {method}")
