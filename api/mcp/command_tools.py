"""Commands as tools: run one and wait, or start it and read, feed and signal it."""

from contextlib import aclosing
from dataclasses import replace
from typing import Any

from api.mcp.inputs import Inputs, part
from api.mcp.results import (
    APPROVAL_SECONDS,
    HeadAndTail,
    RefusedError,
    ToolResult,
    of_model,
    waits_for,
)
from api.mcp.tool import Caller, McpTool, described
from api.operations.commands import execute
from api.operations.processes import feed_process, list_processes, read_process, signal_process
from api.shape.answers import Accepted, EventStream
from api.shape.context import Context
from paddock.contract.command_requests import ExecBody, OutputQuery, SignalBody, StdinBody
from paddock.contract.commands import (
    CommandOutput,
    CommandResult,
    Exit,
    ExitData,
    OutputData,
    PendingCommand,
)
from paddock.contract.mcp import McpCommand
from paddock.contract.problem import Problem

_WORDS = (
    *("command", "argv", "shell", "cwd", "env", "stdin"),
    *("merge", "output_file", "timeout"),
)
_EXEC = Inputs((part(ExecBody, *_WORDS),))
_START = Inputs((part(ExecBody, *_WORDS, "stdin_open"),))
_READ = Inputs((part(McpCommand), part(OutputQuery)))
_FEED = Inputs((part(McpCommand), part(StdinBody, "data", "close")))
_SIGNAL = Inputs((part(McpCommand), part(SignalBody)))


async def run_command(caller: Caller, body: ExecBody) -> ToolResult:
    """Runs a command to its end; the client is told what it prints, as it prints it.

    If the call is cancelled, the command is ended. Raises: RefusedError.
    """
    context = replace(caller.context, wants_events=True, last_event=None)
    async with caller.doing(execute, context=context, body=body) as answer:
        if isinstance(answer, Accepted) and isinstance(answer.model, PendingCommand):
            if body.wait == 0:
                caller.tell(waits_for(answer.model.approval), 0)
                return await run_command(caller, body.model_copy(update={"wait": APPROVAL_SECONDS}))
            return of_model(answer.model)
        return of_result(await _result(caller, answer))


async def _result(caller: Caller, answer: EventStream) -> CommandResult:
    kept = {"stdout": HeadAndTail(), "stderr": HeadAndTail()}
    with answer.held:
        async with aclosing(answer.events) as events:
            async for event in events:
                if event is None:
                    continue
                match event.data:
                    case OutputData() as data:
                        kept[event.name].skip(data.cut)
                        kept[event.name].add(data.text)
                        caller.tell(data.text, data.offset + len(data.text))
                    case ExitData() as end:
                        return _ended(end, kept)
                    case Problem() as problem:
                        raise RefusedError(problem)
    raise AssertionError("a command's events end with its end")


def _ended(end: ExitData, kept: dict[str, HeadAndTail]) -> CommandResult:
    texts = {name: text.text for name, text in kept.items()}
    cut = end.truncated or any(text.is_cut for text in kept.values())
    members = {name: value for name, value in end.raw.items() if name != "time"}
    return CommandResult.model_validate(members | texts | {"truncated": cut})


def of_result(result: CommandResult) -> ToolResult:
    """What a command printed, and how it ended."""
    lines = [result.stdout] if result.stdout else []
    if result.stderr:
        lines.append(f"[stderr]\n{result.stderr}")
    rest = "; read_process returns what was cut, from any `after` on" if result.truncated else ""
    lines.append(f"[{_outcome(result)}; command {result.command_id}{rest}]")
    return ToolResult("\n".join(lines), of_model(result).members, failed=result.exit_code is None)


def _outcome(end: Exit) -> str:
    sentence = "its end is unknown" if end.exit_code is None else f"exit code {end.exit_code}"
    if end.timed_out:
        sentence += ", ended at its time limit"
    elif end.reason is not None:
        sentence += f", {end.reason}"
    if end.error is not None:
        sentence += f", {end.error}"
    return sentence if end.rule is None else f"{sentence}, refused by {end.rule}"


async def _exec(caller: Caller, given: dict[str, Any]) -> ToolResult:
    (body,) = _EXEC.read(given)
    return await run_command(caller, body)


async def _start(caller: Caller, given: dict[str, Any]) -> ToolResult:
    (body,) = _START.read(given)
    body = body.model_copy(update={"background": True})
    async with caller.doing(execute, body=body) as answer:
        return of_model(answer.model)


async def _list(caller: Caller, given: dict[str, Any]) -> ToolResult:
    Inputs(()).read(given)
    async with caller.doing(list_processes) as answer:
        return of_model(answer)


async def _read(caller: Caller, given: dict[str, Any]) -> ToolResult:
    command, query = _READ.read(given)
    named = _naming(caller.context, command)
    inputs = {"command_id": command.command_id, "query": query}
    async with caller.doing(read_process, context=named, **inputs) as answer:
        shown: CommandOutput = answer
        text = "".join(each.text for each in shown.output)
        end = shown.status if shown.exit is None else _outcome(shown.exit)
        lost = "; what came before is lost" if shown.lost else ""
        text = f"{text}\n[{end}; continue with after={shown.next}{lost}]"
        members = of_model(shown).members or {}
        return ToolResult(text, {name: members[name] for name in members if name != "output"})


async def _feed(caller: Caller, given: dict[str, Any]) -> ToolResult:
    command, body = _FEED.read(given)
    named = _naming(caller.context, command)
    inputs = {"command_id": command.command_id, "body": body}
    async with caller.doing(feed_process, context=named, **inputs) as answer:
        return of_model(answer)


async def _signal(caller: Caller, given: dict[str, Any]) -> ToolResult:
    named = {} if given.get("signal") is not None else {"signal": "TERM"}
    command, body = _SIGNAL.read(given | named)
    context = _naming(caller.context, command)
    inputs = {"command_id": command.command_id, "body": body}
    async with caller.doing(signal_process, context=context, **inputs) as answer:
        return of_model(answer)


def _naming(context: Context, command: McpCommand) -> Context:
    return replace(context, path={**context.path, "command_id": command.command_id})


COMMAND_TOOLS = (
    McpTool(
        "exec",
        "Runs a command and returns its output and exit code. Give `argv` or `command`, which no "
        "shell reads, or where any command may run `shell`, a line for bash. The session's "
        "permission level decides which commands may run.",
        _EXEC.schema,
        _exec,
    ),
    McpTool(
        "start_process",
        "Starts a command in the background and returns its `command_id`.",
        _START.schema,
        _start,
    ),
    McpTool("list_processes", described(list_processes), Inputs(()).schema, _list, reads=True),
    McpTool("read_process", described(read_process), _READ.schema, _read, reads=True),
    McpTool("feed_process", described(feed_process), _FEED.schema, _feed),
    McpTool(
        "signal_process",
        "Sends a signal to a command, and ends it with TERM, the default, or KILL.",
        _SIGNAL.schema | {"required": ["command_id"]},
        _signal,
    ),
)
