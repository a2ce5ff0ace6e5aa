"""Operations that use tools: the operator's, by their manifests, and those of a run's host."""

import json
import shlex

from orchestrator.programs.turns.host_tools import HostCall, HostToolError
from orchestrator.programs.turns.operations.commands import run_command
from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.turn_operation import Done, StagedChange, turn_operation
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.rules.tools.gates import APPROVAL
from orchestrator.state.requests import ExecRequest
from orchestrator.work.approvals.approval_rows import Approval

# How long a call waits for a person; the session's time and the terminal's own limits may be
# shorter.
_APPROVAL_SECONDS = 600.0


async def use_tool(context: OperationContext, tool: str, given: Value = "") -> Done:
    """Sends `name.command` of a tool a line, or runs a oneshot tool with a list of arguments."""
    name, dot, _ = tool.partition(".")
    if not dot:
        return await _run(context, tool, given)
    if not isinstance(given, str):
        raise OperationFailed("world.tool: given must be a line of text")
    return await _send(context, name, tool, given)


async def _send(context: OperationContext, name: str, tool: str, line: str) -> Done:
    """A line for the turn's terminal of the tool."""
    services = context.services
    terminal = await context.terminals.of(name)
    exchange = await services.tools.interact(
        context.principal, context.session, terminal, tool, line, _APPROVAL_SECONDS
    )
    if exchange.status == "pending":
        raise _undecided(exchange.approval)
    results = exchange.results
    value: Value = (
        ("status", exchange.status),
        ("output", "" if results is None else results.output),
        ("session-state", "" if results is None else results.session_state),
        ("error", exchange.error),
    )
    recorded = {"pty": terminal, "status": exchange.status, "output_bytes": exchange.output_bytes}
    return Done(value, recorded, staged=(StagedChange("run", command=f"{tool}: {line}"),))


async def _run(context: OperationContext, tool: str, given: Value) -> Done:
    """A oneshot tool, as a command of the session."""
    request = await context.services.commands.request(
        context.principal,
        context.session,
        tool,
        _arguments(given),
        ExecRequest(collect=True),
        _APPROVAL_SECONDS,
    )
    if isinstance(request, Approval):
        raise _undecided(request)
    return await run_command(context, request, shlex.join(request.argv or ()))


def _arguments(given: Value) -> dict[str, str]:
    """Texts by name, from a list of pairs. Raises: OperationFailed."""
    found: dict[str, str] = {}
    for pair in given if isinstance(given, tuple) else ():
        match pair:
            case (str(name), str(value)) if name not in found:
                found[name] = value
            case _:
                raise OperationFailed(
                    "world.tool: given must be a list of names and texts, each name once"
                )
    return found


def _undecided(approval: Approval | None) -> OperationFailed:
    named = "" if approval is None else f" {approval.id}"
    return OperationFailed(f"nobody has decided about the approval{named} in time", APPROVAL)


async def call_host(context: OperationContext, tool: str, arguments: str) -> Done:
    """Calls a tool that the host has registered with the run; the text of its answer."""
    conversation = context.conversation
    known = () if conversation is None else conversation.run.tools
    found = next((each for each in known if each.name == tool), None)
    if conversation is None or found is None:
        raise OperationFailed(f"tool.call: the host has no tool {tool[:64]}: only runs have some")
    call = HostCall(context.number, conversation.calling, json.loads(arguments))
    try:
        answer = await context.services.host_tools.call(
            context.principal, context.session, found, call
        )
    except HostToolError as error:
        raise OperationFailed(f"tool.call: {error}") from None
    recorded = {"call_id": call.id, "bytes": answer.bytes, "sha256": answer.sha256}
    return Done(answer.text, recorded)


OPERATIONS = (turn_operation("world.tool", use_tool), turn_operation("tool.call", call_host))
