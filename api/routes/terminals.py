"""A session's terminals: open them, send lines, read their transcripts, end them."""

from http import HTTPStatus

from aiohttp import web

from api.call import Call, reply
from api.queries import IncarnationQuery
from api.tool_schemas import InteractionBody, TerminalBody


async def open_one(call: Call, body: TerminalBody) -> web.Response:
    """Starts a tool on a terminal of its own; the answer comes when it shows its prompt.

    The terminal is pinned to the tool's manifest as it is now.
    """
    opened = await call.work.complete(
        call.plane.tools.open(call.principal, call.session(), body.tool)
    )
    return reply(opened, HTTPStatus.CREATED, {"Location": f"{call.request.path}/{opened['id']}"})


async def interact(call: Call, body: InteractionBody) -> web.Response:
    """Sends a line, where the tool's manifest and the rules allow it; what the tool answered.

    202 while a line that a person must approve has no word yet: nothing was sent, and the same
    line again asks for the word. A line goes on when its client goes away.
    """
    if body.wait:
        call.work.follow()
    envelope = await call.plane.tools.interact(
        call.principal, call.session(), _id(call), body.tool, body.command, body.wait
    )
    pending = envelope["status"] == "pending"
    return reply(envelope, HTTPStatus.ACCEPTED if pending else HTTPStatus.OK)


async def list_all(call: Call, query: IncarnationQuery) -> web.Response:
    """Every terminal that the session has, and had, oldest first; also after the session's end."""
    items = await call.plane.terminals.records.list(await _key(call, query))
    return reply({"items": items, "next": None})


async def read(call: Call, query: IncarnationQuery) -> web.Response:
    """One terminal, also after its end, and that of its session."""
    return reply(await call.plane.terminals.records.get(await _key(call, query), _id(call)))


async def transcript(call: Call, query: IncarnationQuery) -> web.Response:
    """What happened in a terminal, line by line; what was said is quoted and escaped."""
    text = await call.plane.terminals.records.transcript(await _key(call, query), _id(call))
    return web.Response(text=text)


async def close(call: Call) -> web.Response:
    """Ends a terminal and its tool; one that has ended stays as it is."""
    ended = await call.work.complete(call.plane.terminals.close(call.session(), _id(call)))
    return reply(ended)


async def _key(call: Call, query: IncarnationQuery) -> str:
    """The session whose terminals are meant: they outlive its record."""
    return await call.record_key(call.session_id, query.incarnation)


def _id(call: Call) -> str:
    return call.request.match_info["terminal_id"]
