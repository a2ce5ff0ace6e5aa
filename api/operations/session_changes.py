"""Changes of a session: paused, resumed, ended, interrupted; its handle, and its episode."""

from api.operations.sessions import shown
from api.shape import stops
from api.shape.access import Access, Glass
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from orchestrator.programs.turns.session_turns import SessionTurns
from orchestrator.rules.access.key_scopes import check_covers
from orchestrator.rules.access.keys import KeyRing
from orchestrator.sessions.sessions import Sessions
from paddock.contract.requests import NoBody
from paddock.contract.runs import InterruptBody
from paddock.contract.session_requests import EpisodeBody
from paddock.contract.sessions import Handle, Session

_TAG = "Sessions"
_FREEZING = ("invalid_transition", "engine_unavailable", "sandbox_unavailable")


@operation(
    "POST",
    SESSION + "/pause",
    Access.MANAGE,
    tag=_TAG,
    summary="Pause a session",
    answers="The paused session.",
    errors=_FREEZING,
    stops=stops.pauses_session,
    glass=Glass.OUTSIDE,
)
async def pause_session(context: Context, sessions: Sessions, body: NoBody) -> Session:
    """Freezes every process of the session."""
    session = context.session()
    await context.work.complete(sessions.pause(context.principal, session))
    return shown(context, session)


@operation(
    "POST",
    SESSION + "/resume",
    Access.MANAGE,
    tag=_TAG,
    summary="Resume a session",
    answers="The session, active again.",
    errors=(*_FREEZING, "capacity_exhausted"),
)
async def resume_session(context: Context, sessions: Sessions, body: NoBody) -> Session:
    """Continues the session where it was paused."""
    session = context.session()
    await context.work.complete(sessions.resume(context.principal, session))
    return shown(context, session)


@operation(
    "POST",
    SESSION + "/complete",
    Access.MANAGE,
    tag=_TAG,
    summary="End a session as a success",
    answers="The session as it ended.",
    errors=("invalid_transition",),
    stops=stops.ends_session,
    glass=Glass.OUTSIDE,
)
async def complete_session(context: Context, sessions: Sessions, body: NoBody) -> Session:
    """Ends the session as a success."""
    session = context.session()
    await context.work.complete(sessions.complete(context.principal, session))
    return shown(context, session)


@operation(
    "POST",
    SESSION + "/abort",
    Access.MANAGE,
    tag=_TAG,
    summary="End a session as a failure",
    answers="The session as it ended.",
    errors=("invalid_transition",),
    stops=stops.ends_session,
    glass=Glass.OUTSIDE,
)
async def abort_session(context: Context, sessions: Sessions, body: NoBody) -> Session:
    """Ends the session as a failure."""
    session = context.session()
    await context.work.complete(sessions.abort(context.principal, session))
    return shown(context, session)


@operation(
    "POST",
    SESSION + "/interrupt",
    Access.WORK,
    tag=_TAG,
    summary="Interrupt a session",
    answers="The session, which continues.",
    errors=("session_terminated", "invalid_transition", "conflict", "busy", "sandbox_unavailable"),
    examples={"nothing": {}, "message": {"message": "Stop: the test is right."}},
    stops=stops.interrupts,
    glass=Glass.OUTSIDE,
)
async def interrupt_session(
    context: Context, turns: SessionTurns, sessions: Sessions, body: InterruptBody
) -> Session:
    """Ends everything that runs in the session and its children; the sessions continue.

    A message waits for the session's next run.
    """
    session = context.session()
    if body.message is not None:
        context.check_inside(session)
    for each in (session, *session.family.descendants):
        turns.interrupt(each)
    await context.work.complete(sessions.interrupt(session))
    if body.message is not None:
        queue = turns.queue
        await context.work.complete(queue.add(context.principal, session, [body.message]))
    return shown(context, session)


@operation(
    "POST",
    SESSION + "/handle",
    Access.MANAGE,
    tag=_TAG,
    summary="Replace a session's handle",
    answers="The new handle.",
    errors=("session_terminated",),
    glass=Glass.LASTING,
)
async def rotate_handle(
    context: Context, sessions: Sessions, keys: KeyRing, body: NoBody
) -> Handle:
    """Creates a new handle, which invalidates the old one.

    It may do what the scopes of the owner's key permit, so a key with fewer scopes is refused.
    """
    session = context.session()
    check_covers(keys.scopes(context.principal), keys.scopes_of(session.owner))
    work = sessions.changes.rotate_handle(context.principal, session)
    handle = await context.work.complete(work)
    context.work.recheck()
    return Handle(handle=handle)


@operation(
    "PUT",
    SESSION + "/episode",
    Access.MANAGE,
    tag=_TAG,
    summary="Set a session's episode",
    answers="The session.",
    errors=("session_terminated", "conflict"),
    examples={"next": {"episode_id": "episode-2"}},
)
async def set_episode(context: Context, sessions: Sessions, body: EpisodeBody) -> Session:
    """Names the episode of the session's work; each change is recorded."""
    session = context.session()
    work = sessions.changes.set_episode(context.principal, session, body.episode_id)
    await context.work.complete(work)
    return shown(context, session)
