"""The HTTP application: routes from the table, credentials, and errors as problem documents."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from api import stream
from api.auth import authorize
from api.body import read_body
from api.call import REQUEST_ID, Call, Work
from api.errors import describe, problem
from api.operations import OPERATIONS, Operation
from api.query import read_query
from api.schemas import NoQuery
from orchestrator.control_plane import ControlPlane

MAX_BODY_BYTES = 2 * 1024 * 1024
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Server": "paddock",
}

_Endpoint = Callable[[web.Request], Awaitable[web.StreamResponse]]


def create_app(plane: ControlPlane) -> web.Application:
    """The application over an open control plane, which stays the caller's to close.

    It is to be served with `handler_cancellation`, so that it sees clients leave.
    """
    work = Work()
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_guarded])
    for operation in OPERATIONS:
        app.router.add_route(operation.method, operation.path, _endpoint(operation, plane, work))

    async def stop(_: web.Application) -> None:
        work.stop()

    async def drain(_: web.Application) -> None:
        await work.drain()

    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(stop)
    app.on_cleanup.append(drain)
    return app


def _endpoint(operation: Operation, plane: ControlPlane, work: Work) -> _Endpoint:
    """The operation as aiohttp calls it: credential first, then what the client sent."""

    async def endpoint(request: web.Request) -> web.StreamResponse:
        principal = authorize(plane, request, operation.access)
        inputs: dict[str, Any] = {}
        query = read_query(request, operation.query or NoQuery)
        if operation.query is not None:
            inputs["query"] = query
        if operation.body is not None:
            inputs["body"] = await read_body(request, operation.body)
        return await operation.handler(Call(request, plane, principal, work), **inputs)

    return endpoint


@web.middleware
async def _guarded(request: web.Request, handler: _Endpoint) -> web.StreamResponse:
    """Names the request, and answers every failure with a problem document."""
    request[REQUEST_ID] = secrets.token_hex(8)
    try:
        return await handler(request)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - nothing else may reach a client
        return _failed(request, error)


def _failed(request: web.Request, error: Exception) -> web.StreamResponse:
    begun: web.StreamResponse | None = request.get(stream.STREAM)
    if begun is None:
        return problem(describe(error), request[REQUEST_ID])
    # The status is sent already: only a broken connection can say that this is not all.
    if not isinstance(error, ConnectionError):
        describe(error)
    stream.abort(request)
    return begun


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    if REQUEST_ID in request:
        response.headers["X-Request-Id"] = request[REQUEST_ID]
