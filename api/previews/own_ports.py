"""Ports that foreign protocols serve themselves, at host names, and below the address of these."""

from aiohttp import web
from aiohttp.typedefs import Handler

from api.compat.enabled import ServedPorts
from api.http.middleware import PRINCIPAL, add_headers
from api.previews.named_ports import named_port
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.serving import stream
from orchestrator.settings.allowed_hosts import AllowedHosts

_OWN = web.RequestKey("own", bool)


def add_own_ports(
    app: web.Application,
    plane: ControlPlane,
    hosts: AllowedHosts,
    served: ServedPorts,
    otherwise: Handler,
) -> None:
    """Adds the routes of such ports; `otherwise` serves other ports at the same paths."""

    def chosen(endpoint: Handler) -> Handler:
        async def choose(request: web.Request) -> web.StreamResponse:
            named = named_port(request.headers.getall("Host", ()), plane.previews.domain, hosts)
            if named is not None and named.port not in served.own.numbers:
                return await otherwise(request)
            request[_OWN] = True
            if named is None:
                return await endpoint(request)
            # The host name says which session is meant, whatever the client says besides. Who may
            # use it is decided afterwards.
            name = served.own.session_id(named.session_name)
            session = plane.sessions.registry.named(name)
            headers = request.headers.copy()
            headers[served.own.header] = name if session is None else session.id
            meant = request.clone(headers=headers)
            try:
                return await endpoint(meant)
            finally:
                # The middlewares have the request as it came: they log it, and break it off.
                if PRINCIPAL in meant:
                    request[PRINCIPAL] = meant[PRINCIPAL]
                if stream.STREAM in meant:
                    request[stream.STREAM] = meant[stream.STREAM]

        return choose

    for method, path, endpoint in served.endpoints:
        app.router.add_route(method, path, chosen(endpoint))
    app.on_response_prepare.append(_add_headers)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """What a program in a sandbox answers at another port has headers of its own."""
    if request.get(_OWN):
        await add_headers(request, response)
