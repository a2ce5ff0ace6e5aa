"""Turns of a session: run one, follow it, and read those that were."""

import re
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing

from api.shape.access import Access
from api.shape.answers import HEARTBEAT_SECONDS, Event, EventStream
from api.shape.context import Context
from api.shape.operation import SESSION, Events, operation
from api.shape.spread import spread
from api.views import turns as views
from orchestrator.ground.errors import NotFoundError, PaddockError
from orchestrator.programs.turns.session_turns import SessionTurns
from orchestrator.programs.turns.turn import TurnRecord
from orchestrator.programs.turns.turn_runner import RunningTurn
from orchestrator.sessions.sessions import Sessions
from paddock.contract.turns import TURN_EVENTS, Turn, TurnBody, Turns, TurnsQuery, TurnStarted

_TAG = "Turns"
_TURNS = SESSION + "/turns"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_EVENTS = Events(TURN_EVENTS, "the operations so far")


@operation(
    "POST",
    _TURNS,
    Access.WORK,
    tag=_TAG,
    summary="Run a turn",
    answers="The turn as it ended, or its events as they happen.",
    errors=(
        *("session_terminated", "invalid_transition", "conflict", "sandbox_unavailable"),
        *("capacity_exhausted", "engine_unavailable", "cluster_unavailable"),
    ),
    examples={
        "code": {"code": '(string-length (world.read "README.md"))'},
        "operations": {"operations": [{"operation": "world.read", "args": {"ref": "README.md"}}]},
    },
    events=_EVENTS,
)
async def run_turn(
    context: Context, turns: SessionTurns, sessions: Sessions, body: TurnBody
) -> Turn | EventStream:
    """Runs a program within the session's policy and budget, one at a time.

    A turn continues if its client goes away; its result can be read later. What goes wrong in the
    program is its outcome, not an error. If no budget is left for it, the outcome is
    `nonconverged`.
    """
    session = context.session()
    with ExitStack() as held:
        if context.wants_events:
            held.enter_context(context.streaming("output", session))
        # Only the turn itself uses the sandbox then, and may give it up for another one.
        async with sessions.suspensions.using(context.principal, session):
            started = await context.work.complete(
                turns.start(context.principal, session, views.script(body), body.timeout)
            )
        if context.wants_events:
            return EventStream(_watch(context, turns, started), held.pop_all())
        if isinstance(started, TurnRecord):
            return views.turn(started, [])
        return views.turn(await turns.wait(started), started.log.events)


async def _watch(
    context: Context, turns: SessionTurns, started: RunningTurn | TurnRecord
) -> AsyncGenerator[Event | None]:
    """Yields `start`, each `operation`, and `end` or `error`; None after a while without any."""
    if isinstance(started, TurnRecord):
        yield Event("end", views.turn(started, []))
        return
    yield Event("start", TurnStarted(turn_number=started.turn.number))
    async with aclosing(started.log.follow(HEARTBEAT_SECONDS)) as events:
        async for each in events:
            if each is None:
                yield None
            else:
                number, event = each
                yield Event("operation", views.operation(event), number)
    try:
        turn = await turns.wait(started)
        yield Event("end", views.turn(turn, started.log.events))
    except PaddockError as error:
        yield Event("error", context.problem(error))


@operation(
    "GET",
    _TURNS,
    Access.WORK,
    tag=_TAG,
    summary="List a session's turns",
    answers="A page of turns, without their operations.",
)
async def list_turns(context: Context, turns: SessionTurns, query: TurnsQuery) -> Turns:
    """The session's turns in order; also after the session's end."""
    key = await context.record_key(context.session_id, None)
    found, more = await turns.page(key, query.after, query.limit)
    following = found[-1].number if more else None
    return Turns(items=await spread(found, views.summary), next=following)


@operation(
    "GET",
    _TURNS + "/{number}",
    Access.WORK,
    tag=_TAG,
    summary="Read a turn",
    answers="The turn with its operations.",
)
async def read_turn(context: Context, turns: SessionTurns, number: str) -> Turn:
    """One turn, running or ended, with its operations; also after the session's end."""
    key = await context.record_key(context.session_id, None)
    if not _NUMBER.fullmatch(number):
        raise NotFoundError(f"this session has no turn {number[:32]}")
    turn = await turns.find(key, int(number))
    return views.turn(turn, await turns.operations(key, turn.number))
