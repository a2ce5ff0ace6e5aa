"""Commands of `process.Process`: an exec in the background, whose events are followed."""

import base64
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from api.compat.e2b.inside.access import Inside
from api.compat.e2b.inside.codes import DeadlineError
from api.compat.e2b.inside.messages import Start
from api.compat.e2b.inside.numbers import number_of
from api.compat.e2b.inside.rpc import Answer, Answers
from api.compat.e2b.inside.started import Started
from api.operations.commands import execute
from api.operations.processes import feed_process, read_process, signal_process
from api.shape.answers import Event
from api.shape.objects import validated
from orchestrator.ground.errors import PaddockError, SandboxUnavailableError, ValidationError
from orchestrator.state.command import Command
from orchestrator.work.commands import running_command
from paddock.contract.command_requests import ExecBody, OutputQuery, SignalBody, StdinBody
from paddock.contract.commands import ExitData, OutputData, StartData
from paddock.contract.problem import Problem

_SHELLS = frozenset({"/bin/bash", "/usr/bin/bash", "bash", "/bin/sh", "sh"})
_LINE_OPTIONS = (["-l", "-c"], ["-c"], ["-lc"])
_PIECE = 2**20
_KILL = 9
# What a background command keeps of its output is less.
_MOST_PAGES = 256
_SIGNALS: Mapping[str, str] = {
    "SIGHUP": "hangup",
    "SIGINT": "interrupt",
    "SIGQUIT": "quit",
    "SIGKILL": "killed",
    "SIGTERM": "terminated",
    "SIGSEGV": "segmentation fault",
    "SIGABRT": "aborted",
    "SIGPIPE": "broken pipe",
}


def exec_body(inside: Inside, given: Start, seconds: float | None) -> ExecBody:
    """The command that a request asks for. Raises: ValidationError.

    The SDKs run each line with `bash -l -c`. Where the session's level has a shell, it gets the
    line; elsewhere the line is the words of one command, and the level's rules say what it may be.
    """
    process = given.process
    if not process.cmd:
        raise ValidationError("cmd must not be empty", field="cmd")
    members: dict[str, Any] = {
        "env": process.envs,
        "stdin_open": given.stdin,
        "background": True,
        "timeout": seconds,
    }
    if process.cwd:
        members["cwd"] = inside.path(process.cwd)
    *options, line = process.args or [""]
    if process.cmd in _SHELLS and options in _LINE_OPTIONS:
        shell = inside.session.level.commands is None
        # Nothing is a line, too: it is a command that does nothing.
        members["shell" if shell else "command"] = line if line or not shell else ":"
    else:
        members["argv"] = [process.cmd, *process.args]
    return validated(ExecBody, members)


async def start(inside: Inside, given: Start, seconds: float | None) -> Answers:
    """Starts a command and follows it. If the caller leaves, it goes on.

    Raises: DeadlineError if it was ended by its limit; the errors of `exec`.
    """
    longest = inside.session.level.timeout_max
    body = exec_body(inside, given, None if seconds is None or seconds > longest else seconds)
    async with inside.following(execute, body=body) as events:
        async for each in _answers(inside, events, given):
            yield each


async def connect(inside: Inside, command: Command) -> Answers:
    """Follows a command from now on. Raises: as `start`."""
    after = await _position(inside, command)
    query = validated(OutputQuery, {"after": str(after)})
    async with inside.following(read_process, command_id=command.id, query=query) as events:
        async for each in _answers(inside, events, None):
            yield each


async def _position(inside: Inside, command: Command) -> int:
    """How many bytes the command has printed, as far as they are kept."""
    after = 0
    for _ in range(_MOST_PAGES):
        page = await running_command.read_output(inside.session, command, after, 0, looks=True)
        if page.next <= after:
            break
        after = page.next
    return after


async def _answers(
    inside: Inside, events: AsyncGenerator[Event | None], given: Start | None
) -> Answers:
    printed = False
    async for event in events:
        match None if event is None else event.data:
            case StartData(command_id=command_id):
                if given is not None:
                    inside.context.kept.of(Started).note(inside.session, command_id, given)
                yield {"event": {"start": {"pid": number_of(command_id)}}}
            case OutputData() as output if event is not None:
                printed = True
                yield {"event": {"data": {event.name: printed_data(output)}}}
            case ExitData() as ended:
                yield {"event": {"end": ending(ended, printed=printed)}}
            case Problem() as problem:
                raise _told(problem)
            case _:
                continue


def printed_data(output: OutputData) -> str:
    """The bytes as base64; what was printed too fast to be kept is marked as elsewhere."""
    data = output.text.encode()
    if output.data_base64 is not None:
        data = base64.b64decode(output.data_base64)
    if output.cut:
        data = f"\n[{output.cut} bytes of output were cut here]\n".encode() + data
    return base64.b64encode(data).decode()


def ending(ended: ExitData, *, printed: bool) -> Answer:
    """The end of a command.

    Raises: DeadlineError at the end of its time; SandboxUnavailableError if its end is not known;
    ValidationError if it could not be started.
    """
    if ended.timed_out:
        raise DeadlineError("the command's time is over")
    if ended.exit_code is None:
        raise SandboxUnavailableError(
            "the connection to the sandbox ended before the stream completed"
        )
    if ended.error is not None and not printed:
        raise ValidationError(ended.error)
    if ended.signal is not None:
        status = f"signal: {_SIGNALS.get(ended.signal, ended.signal)}"
        return {"exitCode": -1, "exited": False, "status": status, "error": status}
    status = f"exit status {ended.exit_code}"
    end: Answer = {"exitCode": ended.exit_code, "exited": True, "status": status}
    return end if ended.exit_code == 0 else {**end, "error": status}


def _told(problem: Problem) -> PaddockError:
    """The error that ended a stream."""
    fields = {} if problem.rule is None else {"rule": problem.rule}
    error = PaddockError(problem.detail, **fields)
    error.code = problem.code
    return error


async def feed(inside: Inside, command: Command, data: bytes) -> None:
    """Gives a command input. Raises: the errors of its operation."""
    for at in range(0, len(data), _PIECE):
        await _feed(inside, command, data[at : at + _PIECE], close=False)


async def close_input(inside: Inside, command: Command) -> None:
    """Ends a command's input. Raises: the errors of its operation."""
    await _feed(inside, command, b"", close=True)


async def _feed(inside: Inside, command: Command, data: bytes, *, close: bool) -> None:
    encoded = base64.b64encode(data).decode()
    body = validated(StdinBody, {"data_base64": encoded, "close": close})
    await inside.done(feed_process, command_id=command.id, body=body)


async def signal(inside: Inside, command: Command, number: int) -> None:
    """Signals a command. Raises: the errors of its operation."""
    body = validated(SignalBody, {"signal": number})
    await inside.done(signal_process, command_id=command.id, body=body)


async def kill(inside: Inside, command: Command) -> None:
    """Kills a command."""
    await signal(inside, command, _KILL)
