"""A session's commands: list them, read and follow their output, feed and signal them."""

from aiohttp import web

from api import errors, output
from api.call import Call, reply
from api.queries import OutputQuery
from api.schemas import SignalBody, StdinBody
from api.sse import EventStream, resume_position
from orchestrator.errors import PaddockError
from orchestrator.sessions.session import Command, Session
from orchestrator.sessions.view import command_view


async def list_all(call: Call) -> web.Response:
    """Every command that runs, and the latest that have ended, oldest first."""
    commands = call.plane.executions.commands(call.session())
    return reply({"items": [command_view(command) for command in commands], "next": None})


async def read(call: Call, query: OutputQuery) -> web.StreamResponse:
    """One command with its output after an offset, or (SSE) as it comes, to its end."""
    session, command = _find(call)
    after = resume_position(call.request.headers, query.after) or 0
    if call.wants_events():
        call.work.follow()
        with call.streaming("output", session):
            return await watch(call, session, command, after)
    # What is stored is nothing for those who only look on, like the session's files.
    page = await call.plane.executions.output(
        session, command, after, 0, looks=call.looks, whole=not call.looks
    )
    total = (command.result or {}).get("output_bytes", 0)
    items, position = output.page_text(page, final=command.ended and page.next >= total)
    return reply({**command_view(command), "output": items, "next": position, "lost": page.lost})


async def watch(call: Call, session: Session, command: Command, after: int) -> web.StreamResponse:
    """Server-Sent Events: `start`, `stdout` and `stderr`, and `exit` or `error`."""
    events = EventStream(call.request)
    await events.begin()
    await events.send("start", {"command_id": command.id})
    try:
        await output.follow(call, session, command, events, after)
    except PaddockError as error:
        await events.send("error", errors.document(error, call.request_id))
    return await events.end()


async def feed(call: Call, body: StdinBody) -> web.Response:
    """Feeds a command's standard input; waits while the command reads what came before.

    A command that does not read it for 20 s: 409 `busy`.
    """
    session, command = _find(call)
    data = body.input
    await call.work.complete(call.plane.executions.stdin(session, command, data, body.close))
    return reply({"command_id": command.id, "bytes": len(data), "closed": body.close})


async def signal(call: Call, body: SignalBody) -> web.Response:
    """Sends a signal to a command's process group."""
    session, command = _find(call)
    await call.work.complete(call.plane.executions.signal(session, command, body.signal))
    return reply({"command_id": command.id, "signal": body.signal})


def _find(call: Call) -> tuple[Session, Command]:
    session = call.session()
    return session, call.plane.executions.command(session, call.request.match_info["command_id"])
