"""The live audit stream: of one session, or of all that the caller may see."""

import asyncio
from operator import attrgetter

from aiohttp import web

from api.call import Call
from api.queries import EventsQuery
from api.sse import HEARTBEAT_SECONDS, EventStream, resume_position
from orchestrator.audit.followers import Follower, StreamedEvent
from orchestrator.sessions.session import Session


async def of_session(call: Call, query: EventsQuery) -> web.StreamResponse:
    """A session's events from the first, or after a `seq`; ends with the session."""
    session = call.session()
    after = resume_position(call.request.headers, query.after) or 0
    followers = call.plane.followers
    with (
        call.streaming("events", session),
        followers.of_session(session.key, after, session.over) as follower,
    ):
        return await _follow(call, follower, "seq", session)


async def of_all(call: Call, query: EventsQuery) -> web.StreamResponse:
    """Events of all sessions of the caller (an admin: of everybody), new ones or after an `id`."""
    after = resume_position(call.request.headers, query.after)
    if after is None:
        after = await call.plane.ledger.wait(None, -1)
    owner = call.principal.sees_owner
    with call.streaming("events"), call.plane.followers.of_all(after, owner) as follower:
        return await _follow(call, follower, "id", None)


async def _follow(
    call: Call, follower: Follower, position: str, session: Session | None
) -> web.StreamResponse:
    """Sends what the follower gets, until that is over or the caller's right is gone.

    A session that is over is read to its end, with its own handle, too.
    """
    stream = EventStream(call.request)
    call.work.follow()
    await stream.begin()
    position_of = attrgetter(position)
    while True:
        events = await _next(follower, stream)
        for event in events or ():
            await stream.send_text(event.operation, event.text, position_of(event))
        over = events == []
        if over or (not call.allowed() and (session is None or session.live)):
            return await stream.end()


async def _next(follower: Follower, stream: EventStream) -> list[StreamedEvent] | None:
    """The next events: none when it is over, None when only a heartbeat's time has passed."""
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            return await follower.next()
    except TimeoutError:
        await stream.beat()
        return None
