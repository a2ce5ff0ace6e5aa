"""The HTTP application: the routes of the operations, and the middlewares before them."""

from aiohttp import web

from api.catalog import OPERATIONS
from api.compat.enabled import add_enabled
from api.console.routes import Console
from api.http.bounds import Bounds, RequestRates, Unread
from api.http.cors import Cors
from api.http.docs import Docs
from api.http.endpoint import make_endpoint
from api.http.middleware import add_headers, addressed, guarded, observe, signed_in
from api.http.session_paths import SessionPaths
from api.mcp.conversations import Conversations
from api.shape.context import Kept, Shared, Work
from api.shape.operation import SESSION
from api.shape.services import Services
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.serving.connections import CONNECTIONS, ServedConnections
from orchestrator.settings.allowed_hosts import AllowedHosts

BOUNDS = web.AppKey("bounds", Bounds)


def create_app(plane: ControlPlane) -> web.Application:
    """The application for an open control plane, which the caller closes.

    It must be served with `handler_cancellation`, so that it notices when clients disconnect.
    """
    services = Services.of(plane, OPERATIONS)
    shared = Shared(
        *(plane.sessions, plane.streams, plane.archiving, services, plane.keys, plane.glass)
    )
    work, kept = Work(), Kept()
    bounds = Bounds(RequestRates(plane.settings, plane.keys), Unread(), ServedConnections())
    hosts = AllowedHosts(plane.settings.address[0], plane.settings.allowed_hosts)
    middlewares = [
        *(observe(plane.metrics, plane.lag, plane.begin_span), guarded(plane.metrics)),
        addressed(hosts),
        signed_in(plane),
    ]
    cors = None
    if plane.settings.cors_origins:
        cors = Cors(plane.settings.cors_origins, OPERATIONS)
        middlewares.append(cors.preflights())
    app = web.Application(middlewares=middlewares)
    app[BOUNDS], app[CONNECTIONS] = bounds, bounds.connections
    session_paths = SessionPaths()
    app.router.register_resource(session_paths)
    for operation in OPERATIONS:
        endpoint = make_endpoint(operation, plane, shared, work, kept, bounds)
        paths = session_paths if operation.path.startswith(SESSION) else app.router
        paths.add_route(operation.method, operation.path, endpoint)
    add_enabled(app, plane, shared, work, kept, bounds)
    Docs().add_to(app)
    Console().add_to(app)

    ignore_keys = plane.keys.on_change(work.recheck)

    async def stop(_: web.Application) -> None:
        ignore_keys()
        work.stop()
        kept.of(Conversations).close()

    async def drain(_: web.Application) -> None:
        await work.drain()

    app.on_response_prepare.append(add_headers)
    if cors is not None:
        app.on_response_prepare.append(cors.add_headers)
    app.on_shutdown.append(stop)
    app.on_cleanup.append(drain)
    return app
