"""The sessions of SWE-ReX: shells of Paddock's session that keep their state, by their names."""

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from api.compat.call import Call
from api.compat.swerex.bodies import ActionBody, CreateBody, SessionBody
from api.compat.swerex.expectation import literal
from api.compat.swerex.failures import exception, quoted
from api.operations import shells
from api.shape.answers import Created
from api.shape.objects import validated
from orchestrator.ground.errors import ConflictError, NotFoundError
from paddock.contract.requests import NoBody
from paddock.contract.shells import (
    MOST_RUN_SECONDS,
    ShellAnswer,
    ShellBody,
    ShellInputBody,
    ShellRunBody,
    ShellUntil,
)

# Of the names of these shells, so that `close` ends no others.
PREFIX = "swerex."
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,57}")
_LEAST_SECONDS = 0.001
# How long a job may take to stop, and to end when it is killed.
_STOP_SECONDS = 2.0
_MOST_RETRIES = 20
# Characters of what a command prints while it is waited for, however long that takes.
MOST_OUTPUT = 2 * 2**20
_MOST_NOTICE = 4096
_MOST_NOTICES = 1024
_KILL = "jobs %%; kill -9 %%"


def shell_name(session: str) -> str:
    """The name of the shell that a client calls a session, whatever text it uses."""
    if _PLAIN.fullmatch(session):
        return PREFIX + session
    digest = hashlib.sha256(session.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{PREFIX}-{digest[:40]}"


async def create_session(call: Call) -> dict[str, Any]:
    """Starts a shell and has it source files. Raises: SessionExistsError."""
    given = await call.body(CreateBody)
    shell = _Shell(call, given.session)
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
    shell = _Shell(call, given.session)
    if given.action_type == "bash_interrupt":
        return await _interrupted(shell, given)
    if given.is_interactive_command or given.is_interactive_quit:
        return await _interactive(shell, given)
    notice = shell.take_notice()
    answer = await shell.run(given.command, given.timeout, given.expect)
    answer = answer.model_copy(update={"output": notice + answer.output})
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
    return _observation(_before(answer), exit_code, answer.matched)


async def close_session(call: Call) -> dict[str, Any]:
    """Ends a shell. Raises: SessionDoesNotExistError."""
    given = await call.body(SessionBody)
    await _Shell(call, given.session).end()
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


class _Notices:
    """What the next command of a shell is told before its own output."""

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()

    def put(self, shell: tuple[str, str], text: str) -> None:
        """Keeps a text; of very many shells, the oldest are forgotten."""
        self._texts[shell] = text[-_MOST_NOTICE:]
        if len(self._texts) > _MOST_NOTICES:
            self._texts.popitem(last=False)

    def take(self, shell: tuple[str, str]) -> str:
        """The text, once."""
        return self._texts.pop(shell, "")


class _Shell:
    """One shell, by a client's name of it."""

    def __init__(self, call: Call, session: str) -> None:
        self._call = call
        self._session = session
        self._name = shell_name(session)
        self._place = call.context.session().key, self._name
        self._context = replace(call.context, path={**call.context.path, "name": self._name})

    async def create(self) -> None:
        """Raises: SessionExistsError."""
        exists = exception("SessionExistsError", f"session {self._session} already exists")
        try:
            made = await self._call.done(shells.create_shell, body=ShellBody(name=self._name))
        except ConflictError as error:
            if "pty" in error.fields and "reason" not in error.fields:
                raise exists from None
            raise
        if not isinstance(made, Created):
            raise exists

    async def run(self, command: str, timeout: float | None, expect: list[str]) -> ShellAnswer:
        """Runs a command; at the end of its time it goes on."""
        return await self._until(shells.run_in_shell, {"command": command}, timeout, expect)

    async def type(self, text: str, timeout: float | None, expect: list[str]) -> ShellAnswer:
        """Types into the program that runs, or only waits for it."""
        return await self._until(shells.give_shell_input, {"text": text}, timeout, expect)

    def note(self, text: str) -> None:
        """Keeps what the shell tells of a killed job for the next command, as a prompt would."""
        self._call.context.kept.of(_Notices).put(self._place, text)

    def take_notice(self) -> str:
        """What was kept."""
        return self._call.context.kept.of(_Notices).take(self._place)

    async def is_running(self) -> bool:
        """Whether a command runs."""
        with self._known():
            shown = await self._call.done(shells.read_shell, context=self._context, name=self._name)
        return bool(shown.running)

    async def interrupt(self) -> None:
        """Sends an interrupt to what runs."""
        with self._known():
            await self._call.done(
                shells.interrupt_shell, context=self._context, name=self._name, body=NoBody()
            )

    async def stop(self) -> ShellAnswer:
        """Ends the command that runs, if need be with its shell."""
        body = validated(ShellInputBody, {"text": "", "timeout": _LEAST_SECONDS, "expect": []})
        return await self._asked(shells.give_shell_input, body)

    async def end(self) -> None:
        """Ends the shell."""
        self.take_notice()
        with self._known():
            await self._call.done(shells.close_shell, context=self._context, name=self._name)

    async def _until(
        self, handler: Any, given: dict[str, Any], timeout: float | None, expect: list[str]
    ) -> ShellAnswer:
        """The answer; one that takes longer than an operation may is waited for in parts."""
        left = float("inf") if timeout is None else max(timeout, _LEAST_SECONDS)
        texts, output, lost = [literal(text) for text in expect], "", 0
        while True:
            seconds = min(left, float(MOST_RUN_SECONDS))
            model: type[ShellUntil] = ShellRunBody if "command" in given else ShellInputBody
            terms = {"timeout": seconds, "expect": texts, "at_timeout": "continue"}
            answer = await self._asked(handler, validated(model, given | terms))
            output, left = output + answer.output, left - seconds
            lost += max(0, len(output) - MOST_OUTPUT)
            output = output[-MOST_OUTPUT:]
            if answer.status != "timed_out" or left <= 0:
                missing = f"[{lost} characters of output are not kept]\n" if lost else ""
                return answer.model_copy(update={"output": missing + output})
            handler, given = shells.give_shell_input, {"text": ""}

    async def _asked(self, handler: Any, body: ShellUntil) -> ShellAnswer:
        with self._known():
            answer: ShellAnswer = await self._call.done(
                handler, context=self._context, name=self._name, body=body
            )
        return answer

    @contextmanager
    def _known(self) -> Iterator[None]:
        """Raises: SessionDoesNotExistError if there is no such shell, or it has ended."""
        try:
            yield
        except (NotFoundError, ConflictError) as error:
            if isinstance(error, ConflictError) and "reason" not in error.fields:
                raise
            text = f"session {self._session!r} does not exist: {error.detail}"
            raise exception("SessionDoesNotExistError", text) from None


async def _interactive(shell: _Shell, given: ActionBody) -> dict[str, Any]:
    """Gives a line to the program that runs, or starts one."""
    if await shell.is_running():
        answer = await shell.type(f"{given.command}\n", given.timeout, given.expect)
    else:
        answer = await shell.run(given.command, given.timeout, given.expect)
    _check_answered(given, answer)
    output = _before(answer)
    if not given.is_interactive_quit:
        output = output.lstrip().removeprefix(given.command).strip()
    return _observation(output, 0, answer.matched)


async def _interrupted(shell: _Shell, given: ActionBody) -> dict[str, Any]:
    """Interrupts what runs, then stops and kills it as a job, then ends it in any case."""
    timeout = 0.2 if given.timeout is None else given.timeout
    if not await shell.is_running():
        return _observation("", 0, None)
    output = ""
    for _ in range(max(1, min(given.n_retry, _MOST_RETRIES))):
        answer = await _after_interrupt(shell, timeout, given.expect)
        if answer is None:
            return _observation(output.strip(), 0, None)
        output += _before(answer)
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


async def _after_interrupt(shell: _Shell, timeout: float, expect: list[str]) -> ShellAnswer | None:
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


def _before(answer: ShellAnswer) -> str:
    """What was printed, up to the text that was expected."""
    return answer.output if answer.matched is None else answer.output.partition(answer.matched)[0]


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
