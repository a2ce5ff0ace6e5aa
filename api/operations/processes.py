"""A session's commands: list them, read and follow their output, send input and signals."""

from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing

from api.operations import output
from api.shape import preconditions, stops
from api.shape.access import Access
from api.shape.answers import Event, EventStream
from api.shape.byte_answers import Printed, PrintedPart
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, Events, operation
from api.shape.preconditions import RANGE
from api.shape.spread import spread
from api.views.commands import command as view
from api.views.commands import command_members
from orchestrator.ground.errors import NotFoundError, PaddockError
from orchestrator.state.command import Command
from orchestrator.state.session import Session
from orchestrator.work.commands import running_command
from orchestrator.work.commands.execution import Executions
from orchestrator.work.commands.recorded_commands import RecordedCommands
from orchestrator.work.files.downloads import part_of
from paddock.contract.command_requests import OutputQuery, PrintedQuery, SignalBody, StdinBody
from paddock.contract.commands import (
    COMMAND_EVENTS,
    CommandOutput,
    Commands,
    InputTaken,
    SignalSent,
    StartData,
)

TAG = "Commands"
EVENTS = Events(COMMAND_EVENTS, "the bytes of output so far, both streams together")
_PROCESSES = SESSION + "/processes"
_PROCESS = _PROCESSES + "/{command_id}"


@operation(
    "GET",
    _PROCESSES,
    Access.READ,
    tag=TAG,
    summary="List a session's commands",
    answers="The commands.",
)
async def list_processes(context: Context, recorded: RecordedCommands) -> Commands:
    """All running commands and the latest ended ones, oldest first."""
    session = context.session()
    await recorded.recall(session)
    commands = list(session.commands.values())
    return Commands(items=await spread(commands, view), next=None)


@operation(
    "GET",
    _PROCESS,
    Access.READ,
    tag=TAG,
    summary="Read or follow a command's output",
    answers="The command and its output, or its events as they happen.",
    errors=("permission_denied", "sandbox_unavailable"),
    events=EVENTS,
)
async def read_process(
    context: Context,
    executions: Executions,
    recorded: RecordedCommands,
    command_id: str,
    query: OutputQuery,
) -> CommandOutput | EventStream:
    """One command with its output from an offset on, or (SSE) live to its end."""
    session, command = await _find(context, recorded, command_id)
    after = context.resume_position(query.after) or 0
    if context.wants_events:
        context.work.follow()
        with ExitStack() as held:
            held.enter_context(context.streaming("output", session))
            return EventStream(watch(context, executions, session, command, after), held.pop_all())
    # Viewers can't read stored output, as they can't read the session's files.
    page = await running_command.read_output(
        session, command, after, 0, looks=context.looks, whole=not context.looks
    )
    total = command.output_bytes
    items, position = output.page_text(page, final=command.ended and page.next >= total)
    members = {"output": items, "next": position, "lost": page.lost}
    return CommandOutput.model_validate(command_members(command) | members)


@operation(
    "GET",
    _PROCESS + "/output",
    Access.READ,
    tag=TAG,
    summary="Read a command's output as bytes",
    answers={
        200: "The bytes, as they are printed; if the connection breaks off, some are missing.",
        206: "The bytes of the range.",
    },
    errors=("permission_denied", "sandbox_unavailable", "range_not_satisfiable"),
    headers=(RANGE,),
)
async def read_output(
    context: Context,
    executions: Executions,
    recorded: RecordedCommands,
    command_id: str,
    query: PrintedQuery,
) -> Printed | PrintedPart:
    """Everything that a command prints and has printed, to its end, exactly as it was written.

    Of long output, what is stored is read, too. The connection is cut before bytes that are not
    kept; `after` begins after them. `Range` is about what follows `after`. It is ignored while the
    command runs, with `stream`, and in another form or with several ranges.
    """
    session, command = await _find(context, recorded, command_id)
    context.work.follow()
    with ExitStack() as held:
        held.enter_context(context.streaming("output", session))
        first = await running_command.read_output(
            session, command, query.after, 0, looks=True, whole=not context.looks
        )
        if first.lost and not (command.ended and command.output_bytes <= query.after):
            raise NotFoundError("the output is not kept any more")
        whole = command.ended and query.stream is None
        total = max(0, command.output_bytes - query.after)
        version = f"{command.id}-{query.after}-{total}" if whole else None
        wanted = preconditions.wanted_range(context.preconditions, version) if whole else None
        start, size = (0, None) if wanted is None else part_of(total, wanted, "output")
        after = query.after + start
        chunks = output.printed(context, executions, session, command, after, query.stream)
        if size is None:
            return Printed(chunks, held.pop_all(), version)
        pieces = output.first(chunks, size)
        return PrintedPart(pieces, held.pop_all(), version, size, start, total)


async def watch(
    context: Context, executions: Executions, session: Session, command: Command, after: int
) -> AsyncGenerator[Event | None]:
    """Yields the events `start`, `stdout` and `stderr`, and `exit` or `error`."""
    told = {"time": command.started_at} if command.started_at else {}
    yield Event("start", StartData.model_validate({"command_id": command.id, **told}))
    try:
        async with aclosing(output.follow(context, executions, session, command, after)) as events:
            async for event in events:
                yield event
    except PaddockError as error:
        yield Event("error", context.problem(error))


@operation(
    "POST",
    _PROCESS + "/stdin",
    Access.WORK,
    tag=TAG,
    summary="Feed a command's standard input",
    answers="The number of bytes accepted.",
    errors=WORK_ERRORS,
    examples={"line": {"data": "yes\n"}, "end": {"close": True}},
)
async def feed_process(
    context: Context, recorded: RecordedCommands, command_id: str, body: StdinBody
) -> InputTaken:
    """Sends data to a command's standard input; waits until the command has read earlier input.

    If the command does not read for 20 s: 409 `busy`.
    """
    session, command = await _find(context, recorded, command_id)
    data = body.input
    feeding = running_command.feed(session, command, data, body.close)
    await context.work.complete(feeding)
    return InputTaken(command_id=command.id, bytes=len(data), closed=body.close)


@operation(
    "POST",
    _PROCESS + "/signal",
    Access.WORK,
    tag=TAG,
    summary="Signal a command",
    answers="The signal that was sent.",
    errors=WORK_ERRORS,
    examples={"name": {"signal": "TERM"}, "number": {"signal": 2}},
    stops=stops.signals_command,
)
async def signal_process(
    context: Context, recorded: RecordedCommands, command_id: str, body: SignalBody
) -> SignalSent:
    """Sends a signal to a command's process group."""
    session, command = await _find(context, recorded, command_id)
    sending = running_command.signal(session, command, body.signal)
    await context.work.complete(sending)
    return SignalSent(command_id=command.id, signal=body.signal)


async def _find(
    context: Context, recorded: RecordedCommands, command_id: str
) -> tuple[Session, Command]:
    session = context.session()
    await recorded.recall(session)
    return session, running_command.find(session, command_id)
