"""Answers only requests that are addressed to a known host, for both applications."""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from orchestrator.settings.allowed_hosts import AllowedHosts


def addressed(hosts: AllowedHosts) -> Middleware:
    """The handlers raise MisdirectedRequestError for any other host."""

    @web.middleware
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts.check(request.headers.getall("Host", ()))
        return await handler(request)

    return checked
