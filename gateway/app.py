"""The applications of a gateway: the API's, and that of sessions' ports, on an address of its own.

Both answer every failure with a problem document, also in the place of a node.
"""

import logging
import secrets
import time
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.access import E2B_PATH, MEASURERS
from gateway.dispatch import KIND, Dispatch
from gateway.errors import e2b_problem, status_of
from gateway.faces.answers import refused
from gateway.faces.asking import RefusedError
from gateway.faces.routes import Faces
from gateway.open import Gateway
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.metrics import CONTENT_TYPE
from orchestrator.ground.serving.connections import CONNECTIONS, ServedConnections
from orchestrator.ground.serving.errors import problem
from orchestrator.ground.serving.failed_answers import answered_or_broken

# As in proxies: the client closed the connection before the answer.
_CLIENT_GONE = 499
_OWN = "own"
_MOST_LOGGED = 128
# Of what a gateway answers itself, as a node would.
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Server": "paddock",
    "Cache-Control": "no-store",
}

access_log = logging.getLogger("paddock.access")


def create_app(
    gateway: Gateway, dispatch: Dispatch | None = None, faces: Faces | None = None
) -> web.Application:
    """The API of all nodes. It must be served with `handler_cancellation`.

    `faces` are what it answers for all nodes; None: nothing.
    """
    app = web.Application(middlewares=[_observed(gateway)])
    app[CONNECTIONS] = ServedConnections()
    own = _Own(gateway)
    app.router.add_get("/healthz", own.healthz)
    app.router.add_get("/readyz", own.readyz)
    app.router.add_get("/metrics", own.metrics)
    if faces is not None:
        faces.add_to(app)
    app.router.add_route("*", "/{path:.*}", (dispatch or Dispatch(gateway)).api)
    return app


def create_preview_app(gateway: Gateway) -> web.Application:
    """Ports of the sessions of all nodes."""
    app = web.Application(middlewares=[_observed(gateway)])
    app[CONNECTIONS] = ServedConnections()
    app.router.add_route("*", "/{path:.*}", Dispatch(gateway).previews)
    return app


class _Own:
    """What a gateway says of itself."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def healthz(self, request: web.Request) -> web.Response:
        """It runs."""
        request[KIND] = _OWN
        return web.json_response({"status": "ok"})

    async def readyz(self, request: web.Request) -> web.Response:
        """Whether requests can be answered: a node must be alive; the database may be away."""
        request[KIND] = _OWN
        members = self._gateway.members
        alive = sum(each.alive for each in members.all)
        status = "ready" if alive else "unavailable"
        checks = {"nodes": f"{alive} alive", "database": members.trouble or "ok"}
        return web.json_response({"status": status, "checks": checks}, status=200 if alive else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        """For a key that may read them."""
        request[KIND] = _OWN
        try:
            await self._gateway.callers.authorize(request, MEASURERS, "metrics")
        except RefusedError as error:
            return refused(error.refusal)
        return web.Response(
            body=self._gateway.metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE}
        )


def _observed(gateway: Gateway) -> Middleware:
    """Answers failures, counts and logs."""

    @web.middleware
    async def observed(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        status = _CLIENT_GONE
        try:
            with request.app[CONNECTIONS].serving(request):
                response = await answered_or_broken(request, handler, partial(_explained, request))
            status = response.status
            return response
        finally:
            seconds = time.perf_counter() - started
            kind = request.get(KIND, "refused")
            gateway.metrics.answered(kind, status, seconds)
            if access_log.isEnabledFor(logging.INFO):
                fields = {
                    "method": request.method[:_MOST_LOGGED],
                    "kind": kind,
                    "status": status,
                    "duration_ms": round(seconds * 1000, 3),
                }
                access_log.info("request", extra=fields)

    return observed


def _explained(request: web.Request, error: PaddockError) -> web.Response:
    request_id = secrets.token_hex(8)
    if request.path.startswith(E2B_PATH):
        answer = e2b_problem(error, request_id)
    else:
        answer = problem(error, request_id, status_of(error))
    answer.headers.update(_HEADERS | {"X-Request-Id": request_id})
    return answer
