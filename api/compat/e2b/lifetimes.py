"""Sandboxes paused and resumed, and for how long they live."""

from contextlib import suppress

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import views
from api.compat.e2b.bodies import (
    AnyBody,
    ConnectBody,
    OlderResumeBody,
    RefreshBody,
    TimeoutBody,
)
from api.compat.e2b.sandboxes import found
from api.compat.e2b.times import keep_paused, lengthen, set_time
from api.operations.files import list_files
from api.operations.session_changes import pause_session, resume_session
from api.operations.sessions import inspect_session
from api.shape.context import Context
from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from orchestrator.state.session import Session
from paddock.contract.files import ListQuery
from paddock.contract.requests import NoBody
from paddock.contract.words import Status


async def set_timeout(call: Call) -> web.Response:
    """A sandbox lives for so many seconds from now, more or less than before."""
    body = await call.body(TimeoutBody)
    _live(call)
    await set_time(call, call.context, body.timeout)
    return views.nothing()


async def refresh(call: Call) -> web.Response:
    """A sandbox lives for so many seconds from now, at least."""
    body = await call.body(RefreshBody)
    _live(call)
    await lengthen(call, call.context, body.duration)
    return views.nothing()


async def pause(call: Call) -> web.Response:
    """Freezes a sandbox, which keeps its memory. Raises: ConflictError if it is paused."""
    await call.body(AnyBody)
    stopping = vars(pause_session)["operation"]
    session = _live(call, call.context.of(stopping))
    if session.suspended:
        raise ConflictError(f"sandbox {session.id} is paused")
    await call.done(pause_session, body=NoBody())
    # It is paused even if it can't be kept for longer.
    with suppress(ValidationError, PermissionDeniedError):
        await keep_paused(call, call.context)
    return views.nothing()


async def connect(call: Call) -> web.Response:
    """A sandbox that runs, for so many seconds from now; resumed if it is paused (201)."""
    seconds = (await call.body(ConnectBody)).timeout
    if not await _woken(call):
        await lengthen(call, call.context, seconds)
        return await _connected(call, 200)
    await set_time(call, call.context, seconds)
    return await _connected(call, 201)


async def resume(call: Call) -> web.Response:
    """A paused sandbox, resumed. Raises: ConflictError if it runs."""
    seconds = (await call.body(OlderResumeBody)).timeout
    if not await _woken(call):
        raise ConflictError(f"sandbox {call.context.session_id} is running")
    await set_time(call, call.context, seconds)
    return await _connected(call, 201)


async def _connected(call: Call, status: int) -> web.Response:
    return views.answer(found(call, await call.done(inspect_session)), status)


async def _woken(call: Call) -> bool:
    """Whether it was paused; it runs now in any case. Raises: as the operations."""
    session = _live(call)
    paused, suspended = session.status is Status.PAUSED, session.suspended
    if paused:
        await call.done(resume_session, body=NoBody())
    if suspended:
        # Its first use gives it a sandbox again.
        await call.done(list_files, query=ListQuery())
    return paused or suspended


def _live(call: Call, context: Context | None = None) -> Session:
    """The session. Raises: NotFoundError if it has ended."""
    session = (context or call.context).session()
    if not session.live:
        raise NotFoundError(f"sandbox {session.id} was not found: it has ended")
    return session
