"""Runs of a session: a model works with the session's tools, and what was said stays."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing
from typing import NamedTuple

from api.shape.access import Access
from api.shape.answers import HEARTBEAT_SECONDS, Event, EventStream
from api.shape.context import Context
from api.shape.operation import SESSION, Events, operation
from api.shape.spread import spread
from api.views import runs as views
from api.views.host_tools import host_tools
from orchestrator.ground.errors import PaddockError, PermissionDeniedError, ValidationError
from orchestrator.programs.turns import host_tools as domain
from orchestrator.programs.turns.host_tools import HostTools
from orchestrator.programs.turns.runs.run_start import run_or_join
from orchestrator.programs.turns.runs.toolbox import toolbox
from orchestrator.programs.turns.session_turns import SessionTurns
from orchestrator.programs.turns.turn import AgentRun, TurnRecord
from orchestrator.programs.turns.turn_runner import RunningTurn
from orchestrator.rules.access.keys import Role
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.session import Session
from orchestrator.work.models.models import Models
from orchestrator.work.terminals.session_tools import SessionTools
from paddock.contract.host_tools import HostTool
from paddock.contract.runs import (
    RUN_EVENTS,
    MessagesQueued,
    QueueBody,
    RenderBody,
    Run,
    SendBody,
    Timeline,
    TimelineQuery,
)
from paddock.contract.turns import TurnStarted

_TAG = "Runs"
_EVENTS = Events(RUN_EVENTS, "the events so far")
_ERRORS = (
    *("session_terminated", "invalid_transition", "conflict", "busy", "sandbox_unavailable"),
    *("capacity_exhausted", "engine_unavailable", "permission_denied"),
    "cluster_unavailable",
)


class RunServices(NamedTuple):
    """What begins runs."""

    sessions: Sessions
    turns: SessionTurns
    models: Models
    session_tools: SessionTools
    host_tools: HostTools


@operation(
    "POST",
    SESSION + "/send",
    Access.WORK,
    tag=_TAG,
    summary="Send messages to a model that works in the session",
    answers="The run as it ended, or its events as they happen.",
    errors=_ERRORS,
    examples={"message": {"messages": [{"role": "user", "content": "Repair the failing test."}]}},
    events=_EVENTS,
)
async def send_messages(
    context: Context,
    sessions: Sessions,
    turns: SessionTurns,
    models: Models,
    session_tools: SessionTools,
    host_tools: HostTools,
    body: SendBody,
) -> Run | EventStream:
    """Runs a model with the session's timeline, these messages, and the tools that it may use.

    It is a turn: one at a time, within the session's policy and budget, and it continues if its
    client goes away. It ends when the model calls no tool. While a run is going on, the messages
    are queued for it: it goes on with them, and the answer is its result.
    """
    texts = tuple(message.content for message in body.messages)
    services = RunServices(sessions, turns, models, session_tools, host_tools)
    return await _run(context, services, body, texts)


@operation(
    "POST",
    SESSION + "/render",
    Access.WORK,
    tag=_TAG,
    summary="Run a model without new messages",
    answers="The run as it ended, or its events as they happen.",
    errors=_ERRORS,
    examples={"nothing": {}, "ticks": {"max_ticks": 3}},
    events=_EVENTS,
)
async def render_session(
    context: Context,
    sessions: Sessions,
    turns: SessionTurns,
    models: Models,
    session_tools: SessionTools,
    host_tools: HostTools,
    body: RenderBody,
) -> Run | EventStream:
    """Runs a model with the session's timeline and what is queued; else like `send`.

    If there is neither, nothing runs, and the answer is an empty result without a number.
    """
    services = RunServices(sessions, turns, models, session_tools, host_tools)
    return await _run(context, services, body, ())


@operation(
    "POST",
    SESSION + "/queue",
    Access.WORK,
    tag=_TAG,
    summary="Queue messages for the next run",
    answers="How many messages wait.",
    errors=("session_terminated", "busy", "sandbox_unavailable"),
    examples={"message": {"messages": [{"role": "user", "content": "Also update the docs."}]}},
)
async def queue_messages(context: Context, turns: SessionTurns, body: QueueBody) -> MessagesQueued:
    """Keeps messages for the session's next run, and runs nothing. 100 may wait."""
    texts = [message.content for message in body.messages]
    queue = turns.queue
    added = await context.work.complete(queue.add(context.principal, context.session(), texts))
    return MessagesQueued(queued=added.waiting)


async def _run(
    context: Context,
    services: RunServices,
    body: RenderBody,
    texts: tuple[str, ...],
) -> Run | EventStream:
    with ExitStack() as held:
        if context.wants_events:
            held.enter_context(context.streaming("output", context.session()))
        started = await begin(context, services, body, texts)
        if context.wants_events:
            return EventStream(watch(context, services.turns, started), held.pop_all())
        if isinstance(started, TurnRecord):
            return views.run(started, [])
        return views.run(await services.turns.wait(started), started.log.events)


async def begin(
    context: Context,
    services: RunServices,
    body: RenderBody,
    texts: tuple[str, ...],
) -> RunningTurn | TurnRecord:
    """Starts a run of the path's session, or joins the one that is going on."""
    session = context.session()
    check_model(services.models, body.model)
    run = AgentRun(
        texts,
        body.model or "",
        body.system,
        body.max_ticks,
        body.max_timeline_entries,
        _host_tools(context, services, session, body.tools),
        body.timeout,
    )
    await _set_level(context, services.sessions, session, body.permission_level)
    # Only the turn itself uses the sandbox then, and may give it up for another one.
    async with services.sessions.suspensions.using(context.principal, session):
        running = run_or_join(services.turns, context.principal, session, run)
        return await context.work.complete(running)


def check_model(models: Models, name: str | None) -> None:
    """Raises: ValidationError for a model that the operator has not configured."""
    known = models.configured
    if name is not None and name not in known:
        raise ValidationError(f"model must be one of {', '.join(known) or 'none'}", field="model")


def _host_tools(
    context: Context, services: RunServices, session: Session, given: Sequence[HostTool]
) -> tuple[domain.HostTool, ...]:
    """The tools of the host. Raises: ValidationError, PermissionDeniedError."""
    if not given:
        return ()
    if context.principal.role is Role.HANDLE:
        raise PermissionDeniedError("tools may be given by the session's host only", field="tools")
    session.policy.check("tool.call")
    others = toolbox(services.session_tools.of_session(context.principal, session), ())
    found = host_tools(given, others)
    for number, tool in enumerate(found):
        services.host_tools.check_url(tool.url, f"tools.{number}.url")
    return found


async def _set_level(
    context: Context, sessions: Sessions, session: Session, level: str | None
) -> None:
    """Changes the session's level as its settings do, if that is asked for."""
    if level is None:
        return
    if context.principal.role is Role.HANDLE:
        raise PermissionDeniedError("permission_level may be given by the session's host only")
    await context.work.complete(sessions.changes.set_level(context.principal, session, level, {}))


async def watch(
    context: Context, turns: SessionTurns, started: RunningTurn | TurnRecord
) -> AsyncGenerator[Event | None]:
    """Yields `start`, the run's events, and `end` or `error`; None after a while without any."""
    if isinstance(started, TurnRecord) or started.conversation is None:
        record = started if isinstance(started, TurnRecord) else started.turn
        yield Event("end", views.run(record, []))
        return
    feed = started.conversation.feed
    yield Event("start", TurnStarted(turn_number=started.turn.number))
    async with aclosing(feed.follow(HEARTBEAT_SECONDS)) as events:
        async for each in events:
            yield None if each is None else views.run_event(RUN_EVENTS, *each)
    try:
        turn = await turns.wait(started)
        yield Event("end", views.run(turn, started.log.events))
    except PaddockError as error:
        yield Event("error", context.problem(error))


@operation(
    "GET",
    SESSION + "/timeline",
    Access.WORK,
    tag=_TAG,
    summary="Read a session's timeline",
    answers="A page of messages.",
)
async def read_timeline(context: Context, turns: SessionTurns, query: TimelineQuery) -> Timeline:
    """What was said to models, by them, and by tools, oldest first; also after the session's end.

    The newest 500 messages are kept, or fewer, as the latest run wanted.
    """
    key = await context.record_key(context.session_id, None)
    found, more = await turns.timeline(key, query.after, query.limit)
    following = found[-1].seq if more else None
    return Timeline(items=await spread(found, views.entry), next=following)
