"""Runs the lines of a template: its steps, and what its sandboxes begin with."""

from collections.abc import Mapping
from typing import Any

from api.compat.call import Call
from api.compat.e2b.builds.built import Start
from api.compat.e2b.builds.steps import HOME
from api.operations.commands import execute
from api.shape.context import Context
from api.shape.objects import validated
from orchestrator.ground.errors import ValidationError
from paddock.contract.command_requests import ExecBody

# How long a program of a template may take until it is ready.
_READY_SECONDS = 60
_MOST_SHOWN = 1024


async def begin(call: Call, context: Context, start: Start) -> None:
    """Starts the template's command, and waits until it is ready.

    Raises: ValidationError if it does not become ready; as the operation does.
    """
    if start.command:
        body = _body(context, start.command, start.directory, start.variables)
        await call.done(execute, context=context, body=_in_background(body))
    if start.ready:
        line = f"until ( {start.ready}\n); do sleep 0.1; done"
        await run_line(
            call, context, line, start.directory, start.variables, seconds=_READY_SECONDS
        )


async def run_line(
    call: Call,
    context: Context,
    line: str,
    directory: str,
    variables: Mapping[str, str],
    *,
    seconds: int | None = None,
) -> str:
    """What a line prints. Raises: ValidationError if it fails; as the operation does."""
    members = _body(context, line, directory, variables)
    longest = context.session().level.timeout_max
    members["timeout"] = longest if seconds is None else min(seconds, longest)
    result = await call.done(execute, context=context, body=validated(ExecBody, members))
    if result.exit_code != 0:
        how = result.error or f"exit code {result.exit_code}"
        shown = result.stdout.strip()[-_MOST_SHOWN:]
        raise ValidationError(f"{line[:256]}: {how}{': ' if shown else ''}{shown}")
    return str(result.stdout)


def _body(
    context: Context, line: str, directory: str, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Where the session's level has a shell, it gets the line; elsewhere it is one command."""
    shell = context.session().level.commands is None
    members: dict[str, Any] = {"shell" if shell else "command": line, "env": dict(variables)}
    inner = directory.removeprefix(HOME).lstrip("/")
    return {**members, "merge": True, **({"cwd": inner} if inner else {})}


def _in_background(members: dict[str, Any]) -> ExecBody:
    return validated(ExecBody, {**members, "background": True})
