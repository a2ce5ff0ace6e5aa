"""Sessions: create, list, inspect, change their life, close."""

import base64
from datetime import UTC, datetime
from http import HTTPStatus

from aiohttp import web

from api.call import Call, reply
from api.queries import CloseQuery, SessionsQuery
from api.schemas import NamedSessionBody, NoBody, SessionBody
from orchestrator.errors import NotFoundError, ValidationError
from orchestrator.log_context import know_secrets
from orchestrator.sessions.requests import NewSession
from orchestrator.sessions.session import Session
from sandbox_agent.redaction import Redactor

# Statuses of sessions that are not kept in memory for good.
ENDED = frozenset({"ended", "completed", "aborted", "budget-exceeded"})


async def create(call: Call, body: SessionBody) -> web.Response:
    """Creates a session; the answer has its handle, which is not shown again."""
    return await _create(call, body.request(), named=body.id is not None)


async def ensure(call: Call, body: NamedSessionBody) -> web.Response:
    """Creates the session of that id, or gets it as it is."""
    session = call.plane.sessions.existing(call.principal, call.session_id)
    if session is not None:
        return reply(call.plane.sessions.view(session))
    return await _create(call, body.request(call.session_id), named=True)


async def _create(call: Call, request: NewSession, *, named: bool) -> web.Response:
    """A client that leaves while it waits for its turn is forgotten; later, its session closed."""
    know_secrets(Redactor(request.secrets.values()).text)
    turn = await call.plane.sessions.shares.turn(call.principal)
    session, handle = await call.work.complete(
        call.plane.sessions.create(call.principal, request, turn),
        lambda created: call.work.detach(
            call.plane.sessions.close(call.principal, created[0], purge=not named)
        ),
    )
    return await _created(call, session, handle)


async def list_all(call: Call, query: SessionsQuery) -> web.Response:
    """The caller's sessions, newest first."""
    if query.status in ENDED:
        return await _list_ended(call, query)
    found = call.plane.sessions.list(call.principal, status=query.status, label=query.label)
    found.sort(key=_position, reverse=True)
    if query.cursor is not None:
        start = _decode_cursor(query.cursor)
        found = [session for session in found if _position(session) < start]
    page = found[: query.limit]
    more = len(found) > len(page)
    return reply(
        {
            "items": [call.plane.sessions.summary(session) for session in page],
            "next": _encode_cursor(_position(page[-1])) if more else None,
        }
    )


async def _list_ended(call: Call, query: SessionsQuery) -> web.Response:
    """Those that have ended, however long ago."""
    found = await call.plane.sessions.list_ended(
        call.principal,
        status=None if query.status == "ended" else query.status,
        label=query.label,
        before=None if query.cursor is None else _decode_cursor(query.cursor),
        limit=query.limit + 1,
    )
    page = found[: query.limit]
    more = len(found) > len(page)
    return reply(
        {
            "items": [call.plane.sessions.summary(session) for session in page],
            "next": _encode_cursor(_position(page[-1])) if more else None,
        }
    )


async def inspect(call: Call) -> web.Response:
    """One session with its live facts."""
    return reply(await call.plane.sessions.inspect(call.session()))


async def show_budget(call: Call) -> web.Response:
    """What the session may use up, has used, and has left; also when it has ended."""
    return reply(call.session().budget.view(datetime.now(UTC)))


async def close(call: Call, query: CloseQuery) -> web.Response:
    """Ends the session and releases all it holds; with `purge` also its workspace.

    The workspace of a session that ended long ago is purged just so.
    """
    try:
        session = call.session()
    except NotFoundError:
        if not query.purge:
            raise
        await call.work.complete(call.plane.sessions.purge(call.principal, call.session_id))
        return reply({"id": call.session_id, "purged": True})
    await call.work.complete(call.plane.sessions.close(call.principal, session, purge=query.purge))
    return reply(call.plane.sessions.view(session))


async def pause(call: Call, body: NoBody) -> web.Response:
    """Freezes every process of the session."""
    session = call.session()
    await call.work.complete(call.plane.sessions.pause(call.principal, session))
    return reply(call.plane.sessions.view(session))


async def resume(call: Call, body: NoBody) -> web.Response:
    """Goes on where it was paused."""
    session = call.session()
    await call.work.complete(call.plane.sessions.resume(call.principal, session))
    return reply(call.plane.sessions.view(session))


async def complete(call: Call, body: NoBody) -> web.Response:
    """Ends the session as a success."""
    session = call.session()
    await call.work.complete(call.plane.sessions.complete(call.principal, session))
    return reply(call.plane.sessions.view(session))


async def abort(call: Call, body: NoBody) -> web.Response:
    """Ends the session as a failure."""
    session = call.session()
    await call.work.complete(call.plane.sessions.abort(call.principal, session))
    return reply(call.plane.sessions.view(session))


async def interrupt(call: Call, body: NoBody) -> web.Response:
    """Ends what runs in the session; the session goes on."""
    session = call.session()
    await call.work.complete(call.plane.sessions.interrupt(call.principal, session))
    return reply(call.plane.sessions.view(session))


async def rotate_handle(call: Call, body: NoBody) -> web.Response:
    """A new handle; the old one is void."""
    work = call.plane.sessions.rotate_handle(call.principal, call.session())
    handle = await call.work.complete(work)
    call.work.recheck()
    return reply({"handle": handle})


async def _created(call: Call, session: Session, handle: str) -> web.Response:
    view = call.plane.sessions.view(session)
    return reply(
        {**view, "handle": handle},
        HTTPStatus.CREATED,
        {"Location": f"/api/sessions/{session.id}"},
    )


def _position(session: Session) -> tuple[str, str]:
    return session.created_at, session.key


def _encode_cursor(position: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(" ".join(position).encode()).decode()


def _decode_cursor(cursor: str) -> tuple[str, str]:
    try:
        created_at, key = base64.urlsafe_b64decode(cursor).decode().split(" ")
    except ValueError:
        raise ValidationError("cursor is not one that was given", field="cursor") from None
    return created_at, key
