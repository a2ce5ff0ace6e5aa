"""Commands of their own, as SWE-ReX executes them."""

from typing import Any

from api.compat.call import Call
from api.compat.swerex.bodies import ExecuteBody
from api.compat.swerex.failures import builtin, exception, quoted
from api.compat.swerex.requests import session_of
from api.operations.commands import execute as run_command
from api.shape.objects import validated
from orchestrator.state.session import Session
from paddock.contract.command_requests import ExecBody
from paddock.contract.commands import CommandResult

_LEAST_SECONDS = 0.001
_NOT_FOUND = 127


async def execute(call: Call) -> dict[str, Any]:
    """Runs a command. Raises: CommandTimeoutError, NonZeroExitCodeError, FileNotFoundError."""
    given = await call.body(ExecuteBody)
    session = session_of(call)
    seconds = _seconds(given, session)
    body = validated(
        ExecBody,
        _words(given)
        | {
            "cwd": given.cwd,
            "env": given.env or {},
            "timeout": seconds,
            "merge": given.merge_output_streams,
        },
    )
    result: CommandResult = await call.done(run_command, body=body)
    if result.timed_out:
        text = f"Timeout ({seconds}s) exceeded while running command"
        raise exception("CommandTimeoutError", text, stdout=result.stdout, stderr=result.stderr)
    if result.rule is not None:
        raise exception("SwerexException", f"{result.error} (rule {result.rule})")
    if result.error is not None:
        raise builtin(
            "FileNotFoundError" if result.exit_code == _NOT_FOUND else "OSError", result.error
        )
    if given.check and result.exit_code != 0:
        raise exception("NonZeroExitCodeError", _failed(given, result))
    return {"stdout": result.stdout, "stderr": result.stderr, "exit_code": result.exit_code}


def _words(given: ExecuteBody) -> dict[str, Any]:
    """The command as `subprocess.run` understands it."""
    if not given.shell:
        return {"argv": given.command if isinstance(given.command, list) else [given.command]}
    if isinstance(given.command, list):
        return {"argv": ["/bin/sh", "-c", *given.command]}
    # A line of nothing succeeds.
    return {"shell": given.command if given.command.strip() else ":"}


def _seconds(given: ExecuteBody, session: Session) -> float:
    """The time that the command has: at most what the level gives."""
    most = float(session.level.timeout_max)
    return most if given.timeout is None else min(max(given.timeout, _LEAST_SECONDS), most)


def _failed(given: ExecuteBody, result: CommandResult) -> str:
    text = (
        f"Command {given.command!r} failed with exit code {result.exit_code}. "
        f"Stdout:\n{quoted(result.stdout)}\nStderr:\n{quoted(result.stderr)}"
    )
    return f"{given.error_msg}: {text}" if given.error_msg else text
