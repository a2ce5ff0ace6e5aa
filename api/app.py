"""The HTTP application: routes of the operations, credentials, and errors as problem documents."""

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from api.catalog import OPERATIONS
from api.console.routes import Console
from api.http import stream
from api.http.auth import addressed
from api.http.bounds import CONNECTIONS, Bounds, Connections, RequestRates, Unread
from api.http.docs import Docs
from api.http.endpoint import make_endpoint
from api.http.errors import describe, problem
from api.http.observability import REQUEST_ID, observe
from api.mcp.conversations import Conversations
from api.shape.context import Kept, Shared, Work
from api.shape.limits import RequestRates
from api.shape.services import Services
from api.shape.context import Kept, Work
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.metrics import Metrics
from orchestrator.settings.allowed_hosts import AllowedHosts

BOUNDS = web.AppKey("bounds", Bounds)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Server": "paddock",
}


def create_app(plane: ControlPlane) -> web.Application:
    """The application for an open control plane, which the caller closes.

    It must be served with `handler_cancellation`, so that it notices when clients disconnect.
    """
    services = Services.of(plane, OPERATIONS)
    shared = Shared(plane.sessions, plane.streams, plane.archiving, services)
    work, kept = Work(), Kept()
    bounds = Bounds(RequestRates(plane.settings, plane.keys), Unread(), Connections())
    hosts = AllowedHosts(plane.settings.address[0], plane.settings.allowed_hosts)
    middlewares = [observe(plane.metrics, plane.lag), _guarded(plane.metrics), addressed(hosts)]
    app = web.Application(middlewares=middlewares)
    app[BOUNDS], app[CONNECTIONS] = bounds, bounds.connections
    for operation in OPERATIONS:
        endpoint = make_endpoint(operation, plane, shared, work, kept, bounds)
        app.router.add_route(operation.method, operation.path, endpoint)
    Docs().add_to(app)
    Console().add_to(app)

    ignore_keys = plane.keys.on_change(work.recheck)

    async def stop(_: web.Application) -> None:
        ignore_keys()
        work.stop()
        kept.of(Conversations).close()

    async def drain(_: web.Application) -> None:
        await work.drain()

    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(stop)
    app.on_cleanup.append(drain)
    return app


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


def _failed(request: web.Request, error: Exception) -> web.StreamResponse:
    begun: web.StreamResponse | None = request.get(stream.STREAM)
    if begun is None:
        return problem(describe(error), request[REQUEST_ID])
    # The status is already sent, so only a broken connection can show that the answer is
    # incomplete.
    if not isinstance(error, ConnectionError):
        describe(error)
    stream.abort(request)
    return begun


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    if REQUEST_ID in request:
        response.headers["X-Request-Id"] = request[REQUEST_ID]
