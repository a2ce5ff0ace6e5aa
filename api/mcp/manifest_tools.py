"""The tools of the operator's manifests: `{tool}__{command}` on a terminal, or oneshot."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from api.mcp.command_tools import run_command
from api.mcp.results import APPROVAL_SECONDS, ToolResult, of_model, waits_for
from api.mcp.tool import Caller, McpTool
from api.operations.terminals import interact, open_terminal
from api.shape.context import Context
from api.shape.objects import validated
from orchestrator.rules.tools.listing import ListedTool
from orchestrator.rules.tools.offered_names import offered_names
from orchestrator.work.terminals.session_tools import SessionTools
from paddock.contract import terminals
from paddock.contract.command_requests import ExecBody
from paddock.contract.terminals import InteractionBody, TerminalBody
from paddock.contract.tool_arguments import meant


class OfferedTool(NamedTuple):
    """A tool, and the name by which it is offered."""

    name: str
    listed: ListedTool


def offered_tools(
    context: Context, session_tools: SessionTools, taken: Collection[str]
) -> list[OfferedTool]:
    """All tools, also those that the session may not use. `taken` are others' names."""
    listed = session_tools.of_session(context.principal, context.session())
    names = offered_names((each.name for each in listed), taken)
    return [OfferedTool(names[each.name], each) for each in listed]


def manifest_tool(offered: OfferedTool) -> McpTool:
    """The tool as clients list and call it."""
    name, listed = offered
    run = partial(_line if listed.command else _oneshot, listed)
    return McpTool(name, listed.explained, listed.input_schema, run)


async def _oneshot(listed: ListedTool, caller: Caller, given: dict[str, Any]) -> ToolResult:
    arguments = meant(listed.input_schema, given)
    body = validated(ExecBody, {"tool": listed.tool, "arguments": arguments})
    return await run_command(caller, body)


async def _line(listed: ListedTool, caller: Caller, given: dict[str, Any]) -> ToolResult:
    body = validated(InteractionBody, meant(listed.input_schema, given) | {"tool": listed.name})
    terminal_id = await _terminal(listed.tool, caller)
    answer = await _send(caller, terminal_id, body)
    if answer.status == "pending" and answer.approval is not None:
        caller.tell(waits_for(answer.approval), 0)
        waits = body.model_copy(update={"wait": APPROVAL_SECONDS})
        answer = await _send(caller, terminal_id, waits)
    return _shown(answer)


async def _send(caller: Caller, terminal_id: str, body: InteractionBody) -> terminals.Interaction:
    context = replace(caller.context, path={**caller.context.path, "terminal_id": terminal_id})
    async with caller.doing(
        interact, context=context, terminal_id=terminal_id, body=body
    ) as answer:
        return answer if isinstance(answer, terminals.Interaction) else answer.model


def _shown(answer: terminals.Interaction) -> ToolResult:
    lines = [answer.output] if answer.output else []
    if answer.status == "pending" and answer.approval is not None:
        lines.append(f"{waits_for(answer.approval)}; the same call again continues to wait")
    elif not answer.ok:
        lines.append(f"[{answer.status}: {answer.error or 'the prompt did not come in time'}]")
    members = of_model(answer).members
    return ToolResult("\n".join(lines), members, failed=answer.status == "error")


async def _terminal(tool: str, caller: Caller) -> str:
    """The conversation's own terminal of the tool, which the first call opens."""
    conversation = caller.conversation
    async with conversation.opening.setdefault(tool, asyncio.Lock()):
        known = conversation.terminals.get(tool)
        live = caller.terminals.live(conversation.session)
        if any(each.id == known and each.reason is None for each in live):
            return str(known)
        async with caller.doing(open_terminal, body=TerminalBody(tool=tool)) as answer:
            conversation.terminals[tool] = answer.model.id
            return conversation.terminals[tool]
