"""Ports that foreign protocols serve themselves: host names say which session is meant."""

from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from api.compat.enabled import OwnPort
from api.previews.named_ports import named_port
from orchestrator.control_plane import ControlPlane
from orchestrator.settings.allowed_hosts import AllowedHosts


def naming_sessions(
    plane: ControlPlane, hosts: AllowedHosts, ports: Mapping[int, OwnPort]
) -> Middleware:
    """Such a request gets the header that names its session, whatever the client has put there.

    Who may use the session is decided afterwards.
    """

    @web.middleware
    async def named(request: web.Request, handler: Handler) -> web.StreamResponse:
        sent = request.headers.getall("Host", ())
        found = named_port(sent, plane.previews.domain, hosts) if ports else None
        own = None if found is None else ports.get(found.port)
        if found is None or own is None:
            return await handler(request)
        session = plane.sessions.registry.named(found.session_name)
        headers = request.headers.copy()
        headers[own.header] = found.session_name if session is None else session.id
        return await handler(request.clone(headers=headers))

    return named
