"""Shells that keep their state as tools."""

from dataclasses import replace
from typing import Any

from api.mcp.inputs import Inputs, part
from api.mcp.results import ToolResult, of_model
from api.mcp.tool import Caller, McpTool, described
from api.operations.shells import (
    close_shell,
    create_shell,
    give_shell_input,
    interrupt_shell,
    list_shells,
    run_in_shell,
)
from api.shape.answers import Created
from api.shape.context import Context
from paddock.contract.mcp import McpShell
from paddock.contract.requests import NoBody
from paddock.contract.shells import ShellAnswer, ShellBody, ShellInputBody, ShellRunBody

_CREATE = Inputs((part(ShellBody),))
_RUN = Inputs((part(McpShell), part(ShellRunBody)))
_INPUT = Inputs((part(McpShell), part(ShellInputBody)))
_NAME = Inputs((part(McpShell),))


async def _create(caller: Caller, given: dict[str, Any]) -> ToolResult:
    (body,) = _CREATE.read(given)
    async with caller.doing(create_shell, body=body) as answer:
        return of_model(answer.model if isinstance(answer, Created) else answer)


async def _list(caller: Caller, given: dict[str, Any]) -> ToolResult:
    Inputs(()).read(given)
    async with caller.doing(list_shells) as answer:
        return of_model(answer)


async def _run(caller: Caller, given: dict[str, Any]) -> ToolResult:
    return await _answered(caller, run_in_shell, *_RUN.read(given))


async def _input(caller: Caller, given: dict[str, Any]) -> ToolResult:
    return await _answered(caller, give_shell_input, *_INPUT.read(given))


async def _answered(caller: Caller, handler: Any, named: McpShell, body: Any) -> ToolResult:
    context, name = _naming(caller.context, named.shell), named.shell
    async with caller.doing(handler, context=context, name=name, body=body) as answer:
        shown: ShellAnswer = answer
        text = f"{shown.output}\n[{_outcome(shown)}]" if shown.output else f"[{_outcome(shown)}]"
        failed = shown.status in ("syntax_error", "timed_out", "ended")
        return ToolResult(text, of_model(shown).members, failed=failed)


def _outcome(answer: ShellAnswer) -> str:
    code = "it still runs" if answer.running else f"exit code {answer.exit_code}"
    error = "" if answer.error is None else f": {answer.error}"
    ended = "" if answer.ended is None else f"; the shell has ended ({answer.ended}): create it"
    return f"{answer.status}{error}; {code}; in {answer.cwd}{ended}"


async def _interrupt(caller: Caller, given: dict[str, Any]) -> ToolResult:
    (named,) = _NAME.read(given)
    context, inputs = _naming(caller.context, named.shell), {"name": named.shell, "body": NoBody()}
    async with caller.doing(interrupt_shell, context=context, **inputs) as answer:
        return of_model(answer)


async def _close(caller: Caller, given: dict[str, Any]) -> ToolResult:
    (named,) = _NAME.read(given)
    context = _naming(caller.context, named.shell)
    async with caller.doing(close_shell, context=context, name=named.shell) as answer:
        return of_model(answer)


def _naming(context: Context, name: str) -> Context:
    return replace(context, path={**context.path, "name": name})


SHELL_TOOLS = (
    McpTool("create_shell", described(create_shell), _CREATE.schema, _create),
    McpTool("list_shells", described(list_shells), Inputs(()).schema, _list, reads=True),
    McpTool("run_in_shell", described(run_in_shell), _RUN.schema, _run),
    McpTool("give_shell_input", described(give_shell_input), _INPUT.schema, _input),
    McpTool("interrupt_shell", described(interrupt_shell), _NAME.schema, _interrupt),
    McpTool("close_shell", described(close_shell), _NAME.schema, _close),
)
