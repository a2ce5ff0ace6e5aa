"""The live audit stream: of one session, or of all that the caller may see."""

import asyncio

from aiohttp import web

from api.call import Call
from api.queries import EventsQuery
from api.sse import HEARTBEAT_SECONDS, EventStream, resume_position
from orchestrator.audit import query as audit
from orchestrator.sessions.session import Session

_PAGE = 100


async def of_session(call: Call, query: EventsQuery) -> web.StreamResponse:
    """A session's events from the first, or after a `seq`; ends with the session."""
    session = call.session()
    after = resume_position(call.request.headers, query.after) or 0
    with session.streaming("events"):
        return await _follow_session(call, session, after)


async def _follow_session(call: Call, session: Session, after: int) -> web.StreamResponse:
    stream = await _begin(call)
    while True:
        over = session.over.done()
        page = await audit.events(call.plane.database, session.key, after_seq=after, limit=_PAGE)
        for event in page:
            await stream.send(event["operation"], event, event["seq"])
            after = event["seq"]
        if not page and (over or not await _wait_in(call, stream, session, after)):
            return await stream.end()


async def _wait_in(call: Call, stream: EventStream, session: Session, after: int) -> bool:
    """As `_wait`, until the session is over: with its own handle, too, it is read to its end."""
    allowed = await _wait(call, stream, session.key, after, session.over)
    return allowed or not session.live


async def of_all(call: Call, query: EventsQuery) -> web.StreamResponse:
    """Events of all sessions of the caller (an admin: of everybody), new ones or after an `id`."""
    after = resume_position(call.request.headers, query.after)
    if after is None:
        after = await call.plane.ledger.wait(None, -1)
    return await _follow_all(call, after)


async def _follow_all(call: Call, after: int) -> web.StreamResponse:
    owner = call.principal.sees_owner
    stream = await _begin(call)
    while True:
        # Where none of the events up to here is the caller's, it goes on after them.
        end = await call.plane.ledger.wait(None, -1)
        page = await audit.all_events(call.plane.database, after, _PAGE, owner)
        for event in page:
            await stream.send(event["operation"], event, event["id"])
        after = page[-1]["id"] if page else max(after, end)
        if not page and not await _wait(call, stream, None, after):
            return await stream.end()


async def _begin(call: Call) -> EventStream:
    stream = EventStream(call.request)
    call.work.follow()
    await stream.begin()
    return stream


async def _wait(
    call: Call,
    stream: EventStream,
    session_key: str | None,
    after: int,
    over: asyncio.Future[None] | None = None,
) -> bool:
    """Waits for a newer event or a heartbeat's time; False when the caller's right is gone."""
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            await call.plane.ledger.wait(session_key, after, over)
    except TimeoutError:
        await stream.beat()
    return call.allowed()
