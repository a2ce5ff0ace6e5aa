"""The foreign protocols that the operator has enabled; no other is imported."""

from importlib import import_module
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler

from api.compat.protocol import OwnPorts, Protocol, Route
from api.http.bounds import Bounds
from api.shape.context import Kept, Shared, Work
from orchestrator.control_plane import ControlPlane


class ServedPorts(NamedTuple):
    """Ports that a protocol serves, with its routes: method, path and handler."""

    own: OwnPorts
    endpoints: list[tuple[str, str, Handler]]


OWN_PORTS = web.AppKey("own_ports", list[ServedPorts])


def add_enabled(
    app: web.Application,
    plane: ControlPlane,
    shared: Shared,
    work: Work,
    kept: Kept,
    bounds: Bounds,
) -> None:
    """Adds the routes of the protocols that `PADDOCK_COMPAT` names, and notes their own ports."""
    ports = app[OWN_PORTS] = []
    if not plane.settings.compat:
        return
    from api.compat.endpoint import make_endpoint

    for name in plane.settings.compat:
        # Each protocol has a folder, whose `routes` module says what it is.
        protocol: Protocol = import_module(f"api.compat.{name}.routes").PROTOCOL

        def endpoint(route: Route, protocol: Protocol = protocol) -> Handler:
            return make_endpoint(protocol, route, plane, shared, work, kept, bounds)

        for route in protocol.routes:
            app.router.add_route(route.method, protocol.path + route.path, endpoint(route))
        for route in protocol.at_root:
            app.router.add_route(route.method, route.path, endpoint(route))
        own = protocol.own_ports
        if own is not None:
            served = [(route.method, route.path, endpoint(route)) for route in own.routes]
            ports.append(ServedPorts(own, served))
