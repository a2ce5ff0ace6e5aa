"""The application on the previews' origin: who may reach which port, and nothing else."""

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler

from api.compat.enabled import ServedPorts
from api.http.middleware import observe, signed_in
from api.previews.admission import NO_LINK, Admission, Admitted
from api.previews.forwarding import forward
from api.previews.headers import for_preflight, is_preflight
from api.previews.named_ports import named_port
from api.previews.own_origin import cookie, entered
from api.previews.own_ports import add_own_ports
from api.previews.pages import page
from api.previews.paths import PreviewPath, read_own_path, read_path
from api.shape.context import Work
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.counts import Counts
from orchestrator.ground.errors import BusyError, NotFoundError, UnauthorizedError
from orchestrator.ground.serving.connections import CONNECTIONS, ServedConnections
from orchestrator.ground.serving.failed_answers import answered_or_broken
from orchestrator.sandbox.ports.limits import PORT_LIMITS, PortLimits
from orchestrator.settings.allowed_hosts import AllowedHosts
from orchestrator.settings.preview_address import preview_hosts
from orchestrator.state.session import Session


def create_preview_app(
    plane: ControlPlane,
    host: str,
    limits: PortLimits = PORT_LIMITS,
    own_ports: Sequence[ServedPorts] = (),
) -> web.Application:
    """The application for an open control plane that listens at `host`.

    `own_ports` are served by foreign protocols, whatever a session has open. It must be served with
    `handler_cancellation`, so that it notices when clients disconnect.
    """
    hosts = AllowedHosts(host, preview_hosts(plane.settings))
    previews = _Previews(plane, hosts, limits)
    app = web.Application(middlewares=[observe(plane.metrics, plane.lag), _paged, signed_in(plane)])
    app[CONNECTIONS] = previews.connections
    for served in own_ports:
        add_own_ports(app, plane, hosts, served, previews.serve)
    app.router.add_route("*", "/{path:.*}", previews.serve)
    ignore_keys = plane.keys.on_change(previews.work.recheck)

    async def stop(_: web.Application) -> None:
        ignore_keys()
        previews.work.stop()

    app.on_shutdown.append(stop)
    return app


class _Previews:
    """Serves requests for ports."""

    def __init__(self, plane: ControlPlane, hosts: AllowedHosts, limits: PortLimits) -> None:
        self.work, self.connections = Work(), ServedConnections()
        self._plane = plane
        self._hosts = hosts
        self._admission = Admission(plane)
        self._limits = limits
        self._shares = Counts[str](limits.key_connections)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Raises: PaddockError."""
        path = self._read(request)
        if path.own_host and path.token is not None:
            return self._entered(request, path, path.token)
        if not path.rest:
            # Relative URLs begin below the slash.
            return _moved(HTTPStatus.TEMPORARY_REDIRECT, f"{path.base}/{path.inside}")
        admitted = self._admission.admit(request, path)
        headers = [*request.headers.items()]
        linked = path.token is not None and not path.own_host
        if linked and is_preflight(request.method, headers):
            return web.Response(status=HTTPStatus.NO_CONTENT, headers=for_preflight(headers))
        self.work.follow()
        with self.work.while_allowed(partial(self._admission.holds, request, path)):
            async with asyncio.timeout(_seconds_until(admitted.until)):
                return await self._forward(request, admitted)

    def _read(self, request: web.Request) -> PreviewPath:
        """The port that a request is for. Raises: MisdirectedRequestError, NotFoundError."""
        named = named_port(
            request.headers.getall("Host", ()), self._plane.previews.domain, self._hosts
        )
        if named is None:
            path = read_path(request.raw_path)
        else:
            session_id = self._admission.named(request, named)
            path = read_own_path(session_id, named.port, request.raw_path)
        if path is None:
            raise NotFoundError("there is nothing at this address")
        return path

    def _entered(self, request: web.Request, path: PreviewPath, token: str) -> web.Response:
        """Keeps a link's token as a cookie, and leads on without it. Raises: UnauthorizedError."""
        until = self._admission.until(path, token)
        if until is None:
            raise UnauthorizedError(NO_LINK)
        seconds = math.ceil(_seconds_until(until) or 0)
        secure = (self._plane.previews.url or "").startswith("https:")
        moved = _moved(HTTPStatus.SEE_OTHER, entered(path))
        moved.headers["Set-Cookie"] = cookie(token, seconds, secure=secure)
        return moved

    async def _forward(self, request: web.Request, admitted: Admitted) -> web.StreamResponse:
        """Raises: PaddockError."""
        session, port = admitted.session, admitted.port
        tunnels = self._plane.ports.tunnels(session)
        with self._share(session), port.in_use.by_this_task(), tunnels.used():
            port.requests += 1
            connect = partial(tunnels.connect, port.port)
            with self.connections.serving(request):
                return await forward(request, admitted.path, port, connect, self._limits)

    @contextlib.contextmanager
    def _share(self, session: Session) -> Iterator[None]:
        with self._shares.taken(session.owner) as admitted:
            if not admitted:
                raise BusyError("the sessions of this key serve too many requests already")
            yield


def _moved(status: HTTPStatus, target: str) -> web.Response:
    return web.Response(
        status=status,
        headers={
            "Location": target,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
        },
    )


def _seconds_until(until: int | None) -> float | None:
    return None if until is None else max(0.0, until - time.time())


@web.middleware
async def _paged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers every failure with a page."""
    return await answered_or_broken(request, handler, page)
