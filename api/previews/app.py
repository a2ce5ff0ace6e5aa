"""The application on the previews' origin: who may reach which port, and nothing else."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler

from api.http import stream
from api.http.auth import authorize
from api.http.bounds import CONNECTIONS, Connections
from api.http.errors import describe
from api.http.middleware import PRINCIPAL, addressed, observe
from api.previews.forwarding import forward
from api.previews.headers import for_preflight, is_preflight
from api.previews.pages import page
from api.previews.paths import PreviewPath, read_path
from api.shape.access import Access
from api.shape.context import Work
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.counts import Counts
from orchestrator.ground.errors import (
    BusyError,
    NotFoundError,
    PaddockError,
    UnauthorizedError,
)
from orchestrator.sandbox.ports.limits import PORT_LIMITS, PortLimits
from orchestrator.settings.allowed_hosts import AllowedHosts
from orchestrator.settings.preview_address import preview_hosts
from orchestrator.state.open_port import OpenPort
from orchestrator.state.session import Session


class _Admitted(NamedTuple):
    """A port for a caller. `until` is when their link expires, in unix seconds; None: never."""

    session: Session
    port: OpenPort
    until: int | None = None


def create_preview_app(
    plane: ControlPlane, host: str, limits: PortLimits = PORT_LIMITS
) -> web.Application:
    """The application for an open control plane that listens at `host`.

    It must be served with `handler_cancellation`, so that it notices when clients disconnect.
    """
    previews = _Previews(plane, limits)
    hosts = AllowedHosts(host, preview_hosts(plane.settings))
    app = web.Application(middlewares=[observe(plane.metrics, plane.lag), _paged, addressed(hosts)])
    app[CONNECTIONS] = previews.connections
    app.router.add_route("*", "/{path:.*}", previews.serve)
    ignore_keys = plane.keys.on_change(previews.work.recheck)

    async def stop(_: web.Application) -> None:
        ignore_keys()
        previews.work.stop()

    app.on_shutdown.append(stop)
    return app


class _Previews:
    """Serves requests for ports."""

    def __init__(self, plane: ControlPlane, limits: PortLimits) -> None:
        self.work, self.connections = Work(), Connections()
        self._plane = plane
        self._limits = limits
        self._shares = Counts[str](limits.key_connections)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Raises: PaddockError."""
        path = read_path(request.raw_path)
        if path is None:
            raise NotFoundError("there is nothing at this address")
        if not path.rest:
            # Relative URLs begin below the slash.
            return _moved(path._replace(rest="/"))
        admitted = self._admit(request, path)
        headers = [*request.headers.items()]
        if path.token is not None and is_preflight(request.method, headers):
            return web.Response(status=HTTPStatus.NO_CONTENT, headers=for_preflight(headers))
        self.work.follow()
        with self.work.while_allowed(partial(self._still_admitted, request, path)):
            async with asyncio.timeout(_seconds_until(admitted.until)):
                return await self._forward(request, path, admitted)

    async def _forward(
        self, request: web.Request, path: PreviewPath, admitted: _Admitted
    ) -> web.StreamResponse:
        """Raises: PaddockError."""
        session, port = admitted.session, admitted.port
        tunnels = self._plane.ports.tunnels(session)
        with self._share(session), port.in_use.by_this_task(), tunnels.used():
            port.requests += 1
            connect = partial(tunnels.connect, port.port)
            with self.connections.serving(request):
                return await forward(request, path, port, connect, self._limits)

    @contextlib.contextmanager
    def _share(self, session: Session) -> Iterator[None]:
        with self._shares.taken(session.owner) as admitted:
            if not admitted:
                raise BusyError("the sessions of this key serve too many requests already")
            yield

    def _admit(self, request: web.Request, path: PreviewPath) -> _Admitted:
        """Raises: UnauthorizedError, PermissionDeniedError, NotFoundError."""
        return self._by_link(path) or self._by_key(request, path)

    def _by_link(self, path: PreviewPath) -> _Admitted | None:
        session = self._plane.sessions.registry.get(path.session_id)
        port = None if session is None else session.ports.open.get(path.port)
        if session is None or port is None or port.closing or path.token is None:
            return None
        until = self._plane.ports.holds(port, path.token)
        return None if until is None else _Admitted(session, port, until)

    def _by_key(self, request: web.Request, path: PreviewPath) -> _Admitted:
        if "Authorization" not in request.headers:
            raise UnauthorizedError(
                "this address needs a link that holds: this one has expired, or its port is "
                "closed. A program can send a key or the session's handle, as Authorization: "
                "Bearer"
            )
        principal = authorize(self._plane, request, Access.WORK)
        request[PRINCIPAL] = principal
        session = self._plane.sessions.finder.find(principal, path.session_id)
        port = session.ports.open.get(path.port)
        if port is None or port.closing:
            raise NotFoundError(f"port {path.port} of the session is not open")
        return _Admitted(session, port)

    def _still_admitted(self, request: web.Request, path: PreviewPath) -> bool:
        try:
            self._admit(request, path)
        except PaddockError:
            return False
        return True


def _moved(path: PreviewPath) -> web.Response:
    return web.Response(
        status=HTTPStatus.TEMPORARY_REDIRECT,
        headers={
            "Location": path.base + path.inside,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
        },
    )


def _seconds_until(until: int | None) -> float | None:
    return None if until is None else max(0.0, until - time.time())


@web.middleware
async def _paged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers every failure with a page."""
    try:
        return await handler(request)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - nothing else may reach a client
        begun: web.StreamResponse | None = request.get(stream.STREAM)
        if begun is None:
            return page(describe(error))
        if not isinstance(error, ConnectionError | TimeoutError):
            describe(error)
        stream.abort(request)
        return begun
