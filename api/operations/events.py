"""The live audit stream of one session, or of all that the caller may see."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial

from api.shape.access import Access
from api.shape.answers import HEARTBEAT_SECONDS, Event, EventStream
from api.shape.context import Context
from api.shape.operation import SESSION, Events, operation
from orchestrator.ground.events import SYSTEM_KEY
from orchestrator.ground.store.database import Database
from orchestrator.record.audit.followers import Follower, Followers
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.query import Selection, owners
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.state.session import Session
from paddock.contract.audit import AllEventsQuery, AuditEvent, EventsQuery
from paddock.contract.cluster import NodeNotice


@operation(
    "GET",
    SESSION + "/events",
    Access.READ,
    tag="Audit",
    summary="Follow a session's events",
    answers="The events as they happen.",
    events=Events({"": AuditEvent}, "the event's `seq`"),
)
async def follow_session(context: Context, followers: Followers, query: EventsQuery) -> EventStream:
    """A session's events from the first one, or after a `seq`; the stream ends with the session."""
    session = context.session()
    after = context.resume_position(query.after) or 0
    with ExitStack() as held:
        held.enter_context(context.streaming("events", session))
        wanted = Selection(session.key)
        following = followers.follow(wanted, after, session.over)
        follower = held.enter_context(following)
        context.work.follow()
        return EventStream(_follow(context, follower, wanted, session), held.pop_all())


@operation(
    "GET",
    "/api/events",
    Access.READ_ALL,
    tag="Audit",
    summary="Follow the events of all sessions",
    answers="The events as they happen.",
    events=Events(
        {"": AuditEvent, "node.missing": NodeNotice, "node.back": NodeNotice},
        "the event's `id`, in a cluster a text",
    ),
)
async def follow_all(
    context: Context,
    ledger: Ledger,
    followers: Followers,
    database: Database,
    query: AllEventsQuery,
) -> EventStream:
    """Events of all sessions of the caller (an admin: of all): new ones, or those after an `id`.

    In a cluster, the stream has the events of all nodes, each node's in their order. It goes on
    without a node that goes away (`node.missing`), and continues with its next event when the node
    is back (`node.back`).
    """
    after = context.resume_position(query.after)
    if after is None:
        after = await ledger.wait(None, -1)
    wanted = Selection(owner=context.principal.sees_owner)
    with ExitStack() as held:
        held.enter_context(context.streaming("events"))
        follower = held.enter_context(followers.follow(wanted, after))
        context.work.follow()
        veils = partial(_veiled_keys, context, database) if context.whole_for else None
        return EventStream(_follow(context, follower, wanted, None, veils), held.pop_all())


async def _follow(
    context: Context,
    follower: Follower,
    wanted: Selection,
    session: Session | None,
    veils: Callable[[Sequence[Recorded]], Awaitable[Collection[str]]] | None = None,
) -> AsyncGenerator[Event | None]:
    """The follower's events, until they end or the caller loses access.

    `veils` finds the keys of the sessions whose content is not for the caller; None: there are
    none.

    The events of an ended session can be read to the end, even with its own handle.
    """
    while True:
        events = await _next(follower)
        if events is None:
            yield None
        veiled = await veils(events) if veils is not None and events else ()
        for event in events or ():
            line = event.veiled_line if event.session_key in veiled else event.line
            yield Event(event.operation, line, wanted.position(event))
        over = events == []
        if over or (not context.allowed() and (session is None or session.live)):
            return


async def _veiled_keys(
    context: Context, database: Database, events: Sequence[Recorded]
) -> Collection[str]:
    """The sessions of other keys among those that the events are about."""
    keys = {event.session_key for event in events} - {SYSTEM_KEY}
    found = await database.read(partial(owners, session_keys=keys))
    return {key for key in keys if found.get(key) != context.whole_for}


async def _next(follower: Follower) -> list[Recorded] | None:
    """The next events: empty at the end, None after a heartbeat's time without events."""
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            return await follower.next()
    except TimeoutError:
        return None
