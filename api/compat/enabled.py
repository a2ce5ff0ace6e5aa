"""The foreign protocols that the operator has enabled; no other is imported."""

from importlib import import_module

from aiohttp import web

from api.compat.protocol import Protocol
from api.http.bounds import Bounds
from api.shape.context import Kept, Shared, Work
from orchestrator.control_plane import ControlPlane


def add_enabled(
    app: web.Application,
    plane: ControlPlane,
    shared: Shared,
    work: Work,
    kept: Kept,
    bounds: Bounds,
) -> None:
    """Adds the routes of the protocols that `PADDOCK_COMPAT` names."""
    if not plane.settings.compat:
        return
    from api.compat.endpoint import make_endpoint

    for name in plane.settings.compat:
        # Each protocol has a folder, whose `routes` module says what it is.
        protocol: Protocol = import_module(f"api.compat.{name}.routes").PROTOCOL
        for route in protocol.routes:
            endpoint = make_endpoint(protocol, route, plane, shared, work, kept, bounds)
            app.router.add_route(route.method, protocol.path + route.path, endpoint)
