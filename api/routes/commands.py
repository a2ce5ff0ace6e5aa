"""Commands: run one, and wait for it or watch it."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from http import HTTPStatus
from typing import TypeVar

from aiohttp import web

from api import output
from api.call import Call, reply
from api.routes.processes import watch
from api.schemas import ExecBody
from orchestrator.errors import PermissionDeniedError
from orchestrator.keys import Role
from orchestrator.sessions.requests import ExecRequest
from orchestrator.sessions.session import Command, Session
from orchestrator.sessions.view import command_view
from orchestrator.store.approval_rows import Approval

T = TypeVar("T")


async def execute(call: Call, body: ExecBody) -> web.StreamResponse:
    """Runs a command: its result, or with `Accept: text/event-stream` its output as it comes.

    A command in the background is answered when it has started.
    """
    session = call.session()
    if call.wants_events():
        # Before anything is run: one too many is refused.
        with call.streaming("output", session):
            return await _execute(call, session, body)
    return await _execute(call, session, body)


async def _execute(call: Call, session: Session, body: ExecBody) -> web.StreamResponse:
    await _change_level(call, session, body.permission_level)
    request: ExecRequest | Approval = body.request()
    governed = call.plane.governed_commands
    if body.tool is not None:
        given = (body.tool, body.arguments, body.request(), body.wait)
        request = await governed.request(call.principal, session, *given)
    if isinstance(request, Approval):
        waiting = {"status": "pending", "approval": request.public()}
        return reply(waiting, HTTPStatus.ACCEPTED)
    collect = not (request.background or call.wants_events())
    command = await call.work.complete(
        governed.start(call.principal, session, replace(request, collect=collect)),
        lambda command: _leave(call, session, command),
    )
    if call.wants_events():
        return await _attended(call, session, command, watch(call, session, command, 0))
    if command.background:
        return reply(command_view(command), HTTPStatus.ACCEPTED)
    result = output.collect(call, session, command)
    return reply(await _attended(call, session, command, result))


async def _change_level(call: Call, session: Session, level: str | None) -> None:
    if level is None:
        return
    if call.principal.role is Role.HANDLE:
        raise PermissionDeniedError("a session's handle may not set permission_level")
    if level != session.level.name:
        await call.work.complete(
            call.plane.sessions.change_settings(call.principal, session, level, {})
        )


async def _attended(call: Call, session: Session, command: Command, outcome: Awaitable[T]) -> T:
    """The outcome; a client that goes away takes its foreground command with it."""
    try:
        return await outcome
    except (asyncio.CancelledError, ConnectionError):
        _leave(call, session, command)
        raise


def _leave(call: Call, session: Session, command: Command) -> None:
    # When the control plane stops, the client did not leave: its result can still be fetched.
    if not command.background and not call.work.stopping:
        call.work.detach(call.plane.executions.client_gone(session, command))
