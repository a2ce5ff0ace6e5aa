"""The HTTP application: routes from the table, credentials, and errors as problem documents."""

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from api import stream
from api.auth import Access, authorize
from api.body import read_body
from api.call import Call, Work
from api.docs import Docs
from api.errors import describe, problem
from api.limits import RequestRates
from api.observability import PRINCIPAL, REQUEST_ID, observe
from api.operations import OPERATIONS
from api.operations.base import Operation
from api.queries import NoQuery
from api.query import read_query
from orchestrator.allowed_hosts import AllowedHosts
from orchestrator.control_plane import ControlPlane
from orchestrator.errors import RateLimitedError
from orchestrator.metrics import Metrics
from orchestrator.store.rounds import asking

# The words that a program can be given and its standard input, also where each character beyond
# ASCII is an escape of JSON, which may take three times as much.
MAX_BODY_BYTES = 8 * 1024 * 1024
# What asks for a stop is no longer than this.
_SMALL_BYTES = 4096
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Server": "paddock",
}


def create_app(plane: ControlPlane) -> web.Application:
    """The application over an open control plane, which stays the caller's to close.

    It is to be served with `handler_cancellation`, so that it sees clients leave.
    """
    work = Work()
    rates = RequestRates(plane.settings, plane.keys)
    hosts = AllowedHosts(plane.settings.address[0], plane.settings.allowed_hosts)
    middlewares = [observe(plane.metrics), _guarded(plane.metrics), _addressed(hosts)]
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=middlewares)
    for operation in OPERATIONS:
        endpoint = _endpoint(operation, plane, work, rates)
        app.router.add_route(operation.method, operation.path, endpoint)
    Docs().add_to(app)

    ignore_keys = plane.keys.on_change(work.recheck)

    async def stop(_: web.Application) -> None:
        ignore_keys()
        work.stop()

    async def drain(_: web.Application) -> None:
        await work.drain()

    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(stop)
    app.on_cleanup.append(drain)
    return app


def _endpoint(
    operation: Operation, plane: ControlPlane, work: Work, rates: RequestRates
) -> Handler:
    """The operation as aiohttp calls it: credential first, then what the client sent."""

    async def endpoint(request: web.Request) -> web.StreamResponse:
        principal = authorize(plane, request, operation.access)
        request[PRINCIPAL] = principal
        call = Call(request, plane, principal, work, operation.access)
        call.know_secrets()
        if operation.access is Access.OPEN:
            inputs = await _inputs(operation, call)
        elif operation.stops is None or not _is_small(request):
            rates.spend(principal)
            inputs = await _inputs(operation, call)
        else:
            stopping = False
            try:
                inputs = await _inputs(operation, call)
                body = inputs.get("body")
                stopping = operation.stops(call) if body is None else operation.stops(call, body)
            finally:
                if not stopping:
                    rates.spend(principal)
        with work.while_allowed(call.allowed), asking(principal.account, principal.name):
            return await operation.handler(call, **inputs)

    return endpoint


async def _inputs(operation: Operation, call: Call) -> dict[str, Any]:
    """What the client sent, as the handler takes it. Raises: ValidationError."""
    inputs: dict[str, Any] = {}
    query = read_query(call.request, operation.query or NoQuery)
    if operation.query is not None:
        inputs["query"] = query
    if operation.body is not None:
        inputs["body"] = await read_body(call.request, operation.body, call.plane.levels)
    return inputs


def _is_small(request: web.Request) -> bool:
    """Whether reading the body costs no more than refusing the request."""
    length = request.content_length
    return not request.can_read_body if length is None else length <= _SMALL_BYTES


def _guarded(metrics: Metrics) -> Middleware:
    """Answers every failure with a problem document."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - nothing else may reach a client
            if isinstance(error, RateLimitedError):
                metrics.rate_limited(error.fields["limit"])
            return _failed(request, error)

    return guarded


def _addressed(hosts: AllowedHosts) -> Middleware:
    """Answers only requests for a host of ours, whatever they ask for."""

    @web.middleware
    async def addressed(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts.check(request.headers.getall("Host", ()))
        return await handler(request)

    return addressed


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
