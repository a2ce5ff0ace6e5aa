"""The application for other nodes of the cluster: sessions that they move here, and nothing else.

It is reached by the listener with certificates alone, and only by those of nodes: no gateway passes
a client's request on to it.
"""

import json
from collections.abc import Callable
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

from api.http.middleware import REQUEST_ID, observe
from api.operations.snapshots import request_in
from api.views import turns
from orchestrator.cluster.tls import names_in
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import NotFoundError
from orchestrator.ground.serving.connections import CONNECTIONS, ServedConnections
from orchestrator.ground.serving.errors import describe, problem
from orchestrator.operate.snapshots.snapshot import ReceivedSnapshot
from orchestrator.state.requests import NewSession


def create_node_app(plane: ControlPlane) -> web.Application:
    """The application for an open control plane that is a node of a cluster."""
    app = web.Application(middlewares=[observe(plane.metrics, plane.lag), _explained])
    app[CONNECTIONS] = ServedConnections()
    moves = _Moves(plane)
    app.router.add_post("/moves", moves.receive)
    app.router.add_post("/moves/{session_key:[0-9a-f]{16}}/settle", moves.settle)
    return app


@web.middleware
async def _explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 - all are answered, unexpected ones are logged
        return problem(describe(error), request[REQUEST_ID])


class _Moves:
    """Takes sessions of other nodes."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def receive(self, request: web.Request) -> web.Response:
        """An envelope and a snapshot: the session is here then, and not active."""
        plane = self._plane

        async def wanted(received: ReceivedSnapshot) -> NewSession:
            asked = partial(request_in, plane.levels, received.manifest.session)
            return await plane.aside.call(received.manifest_bytes, asked)

        upload = request.content.iter_any()
        key = await plane.receiver.receive(_is_caller(request), upload, turns.summary, wanted)
        return _answer({"session_key": key})

    async def settle(self, request: web.Request) -> web.Response:
        """Asks the cluster whose the session is. Raises: NotFoundError: it is not here."""
        key = request.match_info["session_key"]
        if not await self._plane.receiver.settle(key):
            raise NotFoundError(f"no session with the key {key} is active here")
        return _answer({"active": True})


def _is_caller(request: web.Request) -> Callable[[str], bool]:
    transport = request.transport
    names = names_in(None if transport is None else transport.get_extra_info("peercert"))
    return lambda name: name in names


def _answer(members: dict[str, object]) -> web.Response:
    return web.Response(text=json.dumps(members), content_type="application/json")
