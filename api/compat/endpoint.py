"""Adapts a protocol's routes for aiohttp, with the checks and bounds of this API's own requests."""

import asyncio
from contextlib import ExitStack
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

from api.compat.call import Call
from api.compat.protocol import Protocol, Route
from api.http.auth import NOBODY, check_rights, identify
from api.http.body import is_small
from api.http.bounds import Bounds
from api.http.middleware import PRINCIPAL, REQUEST_ID
from api.shape.access import Access
from api.shape.context import Context, Kept, Shared, Work
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError, RateLimitedError
from orchestrator.ground.log_context import asking_as
from orchestrator.ground.round_robin import asking
from orchestrator.ground.serving import stream
from orchestrator.ground.serving.errors import describe
from orchestrator.rules.access.keys import Principal


def make_endpoint(
    protocol: Protocol,
    route: Route,
    plane: ControlPlane,
    shared: Shared,
    work: Work,
    kept: Kept,
    bounds: Bounds,
) -> Handler:
    """The route as a request handler; every failure is answered in the protocol's own form."""

    rates, unread, connections = bounds
    name = f"{protocol.name} {route.method} {route.path}"

    async def endpoint(request: web.Request) -> web.StreamResponse:
        try:
            with asking_as(name):
                return await served(request)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if request.get(stream.STREAM) is not None:
                raise  # the middleware breaks the connection
            if isinstance(error, RateLimitedError):
                plane.metrics.rate_limited(error.fields["limit"])
            failure = route.failure or protocol.failure
            return failure(describe(error), request[REQUEST_ID])

    async def served(request: web.Request) -> web.StreamResponse:
        principal = request[PRINCIPAL] = _admit(plane, protocol, route, request, kept)
        spend = partial(rates.spend, principal)
        allowed = partial(_is_allowed, plane, protocol, route, request, kept)
        context = Context(
            shared,
            principal,
            work,
            request[REQUEST_ID],
            request.match_info,
            allowed,
            kept=kept,
            spend=spend,
        )
        context.know_secrets()
        call = Call(request, context, plane, unread)
        with ExitStack() as held:
            held.enter_context(connections.serving(request))
            held.enter_context(work.while_allowed(allowed))
            held.enter_context(asking(principal.account, principal.name))
            if route.access is Access.OPEN:
                return await route.handler(call)
            if not route.stops or not is_small(request):
                spend()
                held.enter_context(unread.request(principal))
                return await route.handler(call)
            try:
                return await route.handler(call)
            finally:
                if not call.stopped:
                    spend()

    return endpoint


def _admit(
    plane: ControlPlane, protocol: Protocol, route: Route, request: web.Request, kept: Kept
) -> Principal:
    """The caller. Raises: UnauthorizedError, PermissionDeniedError."""
    if route.access is Access.OPEN:
        return NOBODY
    if route.credential is None:
        token = protocol.credential(request)
    else:
        token = route.credential(request, plane, kept)
    principal = identify(plane, token)
    check_rights(plane.keys, principal, route.access, route.scope)
    return principal


def _is_allowed(
    plane: ControlPlane, protocol: Protocol, route: Route, request: web.Request, kept: Kept
) -> bool:
    try:
        _admit(plane, protocol, route, request, kept)
    except PaddockError:
        return False
    return True
