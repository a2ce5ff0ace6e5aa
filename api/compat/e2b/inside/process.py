"""`process.Process`: commands and terminals of the sandbox."""

from collections.abc import AsyncIterator

from api.compat.e2b.inside import commands, ptys
from api.compat.e2b.inside.access import Inside
from api.compat.e2b.inside.codes import DeadlineError, NoProcessError
from api.compat.e2b.inside.messages import (
    Config,
    Empty,
    Input,
    OfProcess,
    SendInput,
    SendSignal,
    Start,
    StreamInput,
    Update,
)
from api.compat.e2b.inside.numbers import number_of
from api.compat.e2b.inside.rpc import (
    Answer,
    Answers,
    answering,
    asking,
    keepalive_of,
    paced,
    unary,
)
from api.compat.e2b.inside.started import Process, Started, find, running
from api.compat.e2b.inside.stats import stat
from api.compat.protocol import Route
from api.shape.access import Access
from orchestrator.ground.errors import NotFoundError, PermissionDeniedError, ValidationError
from orchestrator.state.command import Command

_KEEPALIVE: Answer = {"event": {"keepalive": {}}}
_SIGNALS = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9, 15: 15, 9: 9}
_PATH = "/process.Process/"


async def _start(inside: Inside, given: Start, limit: float | None) -> Answers:
    await _check_directory(inside, given.process.cwd)
    if given.pty is not None:
        answers = ptys.start(inside, given, given.pty.size)
    else:
        answers = commands.start(inside, given, limit)
    ends = given.pty is not None or limit is None or limit > inside.session.level.timeout_max
    number = None
    try:
        # The level's own limit ends a command even if nobody follows it.
        paced_answers = paced(
            answers, _KEEPALIVE, keepalive_of(inside.call.request), limit if ends else None
        )
        async for each in paced_answers:
            number = each["event"].get("start", {}).get("pid", number)
            yield each
    except DeadlineError:
        if ends and number is not None:
            await _end(inside, number)
        raise


async def _check_directory(inside: Inside, given: str | None) -> None:
    """Raises: ValidationError if the caller names a directory that does not exist."""
    if given:
        try:
            await stat(inside, inside.path(given))
        except NotFoundError:
            raise ValidationError(f"cwd '{given[:256]}' does not exist", field="cwd") from None
        except PermissionDeniedError:
            return  # what starts there decides


async def _end(inside: Inside, number: int) -> None:
    """Ends a process whose time is over, if it has not ended by itself."""
    for process in running(inside):
        if number_of(process.id) == number:
            try:
                await _kill(inside, process)
            except NotFoundError:
                return


async def _kill(inside: Inside, process: Process) -> None:
    if isinstance(process, Command):
        await commands.kill(inside, process)
    else:
        await ptys.end(inside, process)


async def _connect(inside: Inside, given: OfProcess, limit: float | None) -> Answers:
    process = find(inside, given.process)
    if isinstance(process, Command):
        answers = commands.connect(inside, process)
    else:
        answers = ptys.connect(inside, process)
    async for each in paced(answers, _KEEPALIVE, keepalive_of(inside.call.request), limit):
        yield each


async def _list(inside: Inside, _given: Empty) -> Answer:
    return {"processes": [_info(inside, process) for process in running(inside)]}


def _info(inside: Inside, process: Process) -> Answer:
    started = inside.context.kept.of(Started)
    config = started.config(inside.session, process.id)
    if config is None:
        argv = process.argv if isinstance(process, Command) else list(process.terminal.spec.argv)
        config = Config(cmd=argv[0], args=argv[1:])
    shown: Answer = {"cmd": config.cmd, "args": config.args, "envs": {}}
    if config.cwd is not None:
        shown["cwd"] = config.cwd
    tag = started.tag(inside.session, process.id)
    info: Answer = {"config": shown, "pid": number_of(process.id)}
    return info if tag is None else {**info, "tag": tag}


async def _give(inside: Inside, process: Process, given: Input) -> None:
    if isinstance(process, Command):
        if given.stdin is None:
            raise ValidationError("the process has no terminal: send stdin", field="input")
        await commands.feed(inside, process, given.stdin)
        return
    if given.pty is None:
        raise ValidationError("the process is a terminal: send pty", field="input")
    await ptys.type_into(inside, process, given.pty)


async def _send_input(inside: Inside, given: SendInput) -> Answer:
    await _give(inside, find(inside, given.process), given.input)
    return {}


async def _stream_input(inside: Inside, requests: AsyncIterator[StreamInput]) -> Answer:
    process: Process | None = None
    async for given in requests:
        if given.start is not None:
            process = find(inside, given.start.process)
        elif given.data is not None:
            if process is None:
                raise ValidationError("the first message must be start", field="start")
            await _give(inside, process, given.data.input)
    return {}


async def _close_stdin(inside: Inside, given: OfProcess) -> Answer:
    process = find(inside, given.process)
    if not isinstance(process, Command):
        raise ValidationError("the input of a terminal can't be closed", field="process")
    await commands.close_input(inside, process)
    return {}


async def _send_signal(inside: Inside, given: SendSignal) -> Answer:
    number = _SIGNALS.get(given.signal)
    if number is None:
        raise ValidationError(f"signal must be one of {', '.join(_names())}", field="signal")
    process = find(inside, given.process)
    try:
        if isinstance(process, Command):
            await commands.signal(inside, process, number)
        else:
            await ptys.end(inside, process)
    except NotFoundError as error:
        raise NoProcessError(error.detail) from None
    return {}


def _names() -> list[str]:
    return [name for name in _SIGNALS if isinstance(name, str)]


async def _update(inside: Inside, given: Update) -> Answer:
    process = find(inside, given.process)
    if isinstance(process, Command):
        raise ValidationError("the process has no terminal", field="process")
    if given.pty is not None:
        await ptys.resize(inside, process, given.pty.size)
    return {}


PROCESS_ROUTES: tuple[Route, ...] = (
    answering(_PATH + "Start", Start, _start),
    answering(_PATH + "Connect", OfProcess, _connect),
    unary(_PATH + "List", Empty, _list, access=Access.READ),
    unary(_PATH + "SendInput", SendInput, _send_input),
    asking(_PATH + "StreamInput", StreamInput, _stream_input),
    unary(_PATH + "CloseStdin", OfProcess, _close_stdin),
    unary(_PATH + "SendSignal", SendSignal, _send_signal, stops=True),
    unary(_PATH + "Update", Update, _update),
)
