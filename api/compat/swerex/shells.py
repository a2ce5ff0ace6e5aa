"""The sessions of SWE-ReX: shells of Paddock's session that keep their state, by their names."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

from api.compat.call import Call
from api.compat.swerex.bodies import ActionBody, CreateBody, SessionBody
from api.compat.swerex.failures import exception, quoted
from api.compat.swerex.shell import PREFIX, Shell
from api.operations import shells
from orchestrator.ground.errors import ConflictError, NotFoundError
from paddock.contract.shells import ShellAnswer

# How long a job may take to stop, and to end when it is killed.
_STOP_SECONDS = 2.0
_MOST_RETRIES = 20
_KILL = "jobs %%; kill -9 %%"


async def create_session(call: Call) -> dict[str, Any]:
    """Starts a shell and has it source files. Raises: SessionExistsError."""
    given = await call.body(CreateBody)
    shell = Shell(call, given.session)
    await shell.create()
    output = ""
    if given.startup_source:
        command = " ; ".join(f"source {path}" for path in given.startup_source)
        try:
            answer = await shell.run(command, given.startup_timeout, [])
        except BaseException:
            await call.context.work.complete(shell.end())
            raise
        if answer.status in ("timed_out", "syntax_error"):
            await call.context.work.complete(shell.end())
            why = answer.error or f"they took longer than {given.startup_timeout} s"
            raise exception("CommandTimeoutError", f"the start-up files can't be sourced: {why}")
        output = answer.output
    return {"output": output, "session_type": "bash"}


async def run_in_session(call: Call) -> dict[str, Any]:
    """Runs a command in a shell, or interrupts the one that runs."""
    given = await call.body(ActionBody)
    shell = Shell(call, given.session)
    if given.action_type == "bash_interrupt":
        return await _interrupted(shell, given)
    if given.is_interactive_command or given.is_interactive_quit:
        return await _interactive(shell, given)
    notice = shell.take_notice()
    answer = await shell.run(given.command, given.timeout, given.expect)
    _check_answered(given, answer)
    if answer.status == "syntax_error":
        text = f"the command {given.command!r} is not valid: {answer.error}"
        told = {"bash_stdout": "", "bash_stderr": answer.error or ""}
        raise exception("BashIncorrectSyntaxError", text, **told)
    exit_code = None if given.check == "ignore" else answer.exit_code
    if given.check == "raise" and answer.status == "finished" and exit_code:
        text = (
            f"Command {given.command!r} failed with exit code {exit_code}. "
            f"Here is the output:\n{quoted(answer.output)}"
        )
        raise exception("NonZeroExitCodeError", _named(given.error_msg, text))
    return _observation(notice + shell.before(answer), exit_code, answer.matched)


async def close_session(call: Call) -> dict[str, Any]:
    """Ends a shell. Raises: SessionDoesNotExistError."""
    given = await call.body(SessionBody)
    await Shell(call, given.session).end()
    return {"session_type": "bash"}


async def close(call: Call) -> dict[str, Any]:
    """Ends all shells that this protocol has started; the session stays."""
    found = await call.done(shells.list_shells)
    for shell in found.items:
        if shell.name.startswith(PREFIX):
            context = replace(call.context, path={**call.context.path, "name": shell.name})
            with suppress(ConflictError, NotFoundError):  # it has ended meanwhile
                await call.done(shells.close_shell, context=context, name=shell.name)
    return {}


async def _interactive(shell: Shell, given: ActionBody) -> dict[str, Any]:
    """Gives a line to the program that runs, or starts one."""
    notice = shell.take_notice()
    if await shell.is_running():
        answer = await shell.type(f"{given.command}\n", given.timeout, given.expect)
    else:
        answer = await shell.run(given.command, given.timeout, given.expect)
    _check_answered(given, answer)
    output = notice + shell.before(answer)
    if not given.is_interactive_quit:
        output = output.lstrip().removeprefix(given.command).strip()
    return _observation(output, 0, answer.matched)


async def _interrupted(shell: Shell, given: ActionBody) -> dict[str, Any]:
    """Interrupts what runs, then stops and kills it as a job, then ends it in any case."""
    timeout = 0.2 if given.timeout is None else given.timeout
    if not await shell.is_running():
        return _observation("", 0, None)
    output = ""
    for _ in range(max(1, min(given.n_retry, _MOST_RETRIES))):
        answer = await _after_interrupt(shell, timeout, given.expect)
        if answer is None:
            return _observation(output.strip(), 0, None)
        output += shell.before(answer)
        if answer.status != "timed_out":
            return _observation(output.strip(), 0, answer.matched)
    stopped = await shell.type("\x1a", _STOP_SECONDS, [])
    output += stopped.output
    if stopped.status == "finished":
        stopped = await shell.run(_KILL, _STOP_SECONDS, [])
        # What the shell would say before its next prompt, if it had one.
        shell.note(stopped.output.replace("Stopped", "Killed", 1))
    if stopped.running:
        output += (await shell.stop()).output
    return _observation(output.strip(), 0, None)


async def _after_interrupt(shell: Shell, timeout: float, expect: list[str]) -> ShellAnswer | None:
    """What has come of the command after an interrupt; None if it had ended before."""
    # Who waits when the interrupt comes gets all that is printed, so the next command gets none.
    waiting, interrupting = await asyncio.gather(
        shell.type("", timeout, expect), shell.interrupt(), return_exceptions=True
    )
    for outcome in (interrupting, waiting):
        if isinstance(outcome, BaseException) and not isinstance(outcome, ConflictError):
            raise outcome
    return waiting if isinstance(waiting, ShellAnswer) else None


def _check_answered(given: ActionBody, answer: ShellAnswer) -> None:
    """Raises: CommandTimeoutError; SwerexException if the shell has ended."""
    if answer.status == "timed_out":
        text = f"timeout after {given.timeout} seconds while running command {given.command!r}"
        raise exception("CommandTimeoutError", text, output=answer.output)
    if answer.status == "ended":
        text = f"the shell has ended ({answer.ended}) with exit code {answer.exit_code}"
        told = {"output": answer.output, "exit_code": answer.exit_code}
        raise exception("SwerexException", f"{text}: create the session again", **told)


def _observation(output: str, exit_code: int | None, matched: str | None) -> dict[str, Any]:
    return {
        "output": output,
        "exit_code": exit_code,
        "failure_reason": "",
        "expect_string": matched or "",
        "session_type": "bash",
    }


def _named(message: str, text: str) -> str:
    return f"{message}: {text}" if message else text
