"""The foreign protocols that the operator has enabled; no other is imported."""

from importlib import import_module
from typing import NamedTuple

from aiohttp import web

from api.compat.protocol import Protocol
from api.http.bounds import Bounds
from api.http.middleware import add_headers
from api.shape.context import Kept, Shared, Work
from orchestrator.control_plane import ControlPlane


class OwnPort(NamedTuple):
    """What serves a port of every session, and the header that names the session to it."""

    app: web.Application
    header: str


# By port.
OWN_PORTS = web.AppKey("own_ports", dict[int, OwnPort])


def add_enabled(
    app: web.Application,
    plane: ControlPlane,
    shared: Shared,
    work: Work,
    kept: Kept,
    bounds: Bounds,
) -> None:
    """Adds the routes of the protocols that `PADDOCK_COMPAT` names, and notes their own ports."""
    ports = app[OWN_PORTS] = {}
    if not plane.settings.compat:
        return
    from api.compat.endpoint import make_endpoint

    for name in plane.settings.compat:
        # Each protocol has a folder, whose `routes` module says what it is.
        protocol: Protocol = import_module(f"api.compat.{name}.routes").PROTOCOL
        for route in protocol.routes:
            endpoint = make_endpoint(protocol, route, plane, shared, work, kept, bounds)
            app.router.add_route(route.method, protocol.path + route.path, endpoint)
        for route in protocol.at_root:
            endpoint = make_endpoint(protocol, route, plane, shared, work, kept, bounds)
            app.router.add_route(route.method, route.path, endpoint)
        own = protocol.own_ports
        if own is None:
            continue
        for number in own.numbers:
            served = web.Application()
            served.on_response_prepare.append(add_headers)
            for route in own.routes:
                endpoint = make_endpoint(protocol, route, plane, shared, work, kept, bounds)
                served.router.add_route(route.method, route.path, endpoint)
            ports[number] = OwnPort(served, own.header)
