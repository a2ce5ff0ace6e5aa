"""A session's terminals: list them, read their transcripts, end them."""

from aiohttp import web

from api.call import Call, reply


async def list_all(call: Call) -> web.Response:
    """Every terminal that the session has, and had, oldest first."""
    items = await call.plane.terminals.records.list(call.session().key)
    return reply({"items": items, "next": None})


async def read(call: Call) -> web.Response:
    """One terminal, also after its end."""
    return reply(await call.plane.terminals.records.get(call.session().key, _id(call)))


async def transcript(call: Call) -> web.Response:
    """What happened in a terminal, line by line; what was said is quoted and escaped."""
    text = await call.plane.terminals.records.transcript(call.session().key, _id(call))
    return web.Response(text=text)


async def close(call: Call) -> web.Response:
    """Ends a terminal and its tool; one that has ended stays as it is."""
    ended = await call.work.complete(call.plane.terminals.close(call.session(), _id(call)))
    return reply(ended)


def _id(call: Call) -> str:
    return call.request.match_info["terminal_id"]
