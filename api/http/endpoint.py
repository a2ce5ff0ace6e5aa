"""Adapts an operation for aiohttp: reads its request and writes its answer."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler

from api.http.answer import respond
from api.http.auth import Admitted, admit
from api.http.body import arriving, check_encoding, is_small, read_body
from api.http.connections import Connections
from api.http.observability import PRINCIPAL, REQUEST_ID
from api.http.origin import check_origin
from api.http.pace import UPLOAD_PACE
from api.http.query import read_query
from api.http.sockets import check_handshake
from api.http.unread import Unread, UnreadBody
from api.shape.access import Access
from api.shape.context import Context, Kept, Shared, Work
from api.shape.limits import RequestRates
from api.shape.operation import Operation
from api.shape.performing import performing
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.round_robin import asking
from paddock.contract.requests import NoQuery


class Bounds(NamedTuple):
    """What bounds requests: their rates, what they hold, and their connections."""

    rates: RequestRates
    unread: Unread
    connections: Connections


def make_endpoint(
    operation: Operation,
    plane: ControlPlane,
    shared: Shared,
    work: Work,
    kept: Kept,
    bounds: Bounds,
) -> Handler:
    """The operation as a request handler; it checks the credential first, then the input."""

    rates, unread, connections = bounds
    of_stop = shared.services.of_stop[operation.id]

    async def endpoint(request: web.Request) -> web.StreamResponse:
        if operation.own_origin:
            check_origin(request.headers.getall("Origin", ()), request.headers.get("Host", ""))
        admitted = admit(plane, request, operation)
        principal = request[PRINCIPAL] = admitted.principal
        if operation.socket:
            check_handshake(request)
        spend = partial(rates.spend, principal)
        context = _context(request, shared, work, admitted, kept, spend)
        context.know_secrets()
        with ExitStack() as held:
            if operation.access is Access.OPEN:
                inputs = await _inputs(operation, request, plane, unread.body(principal))
            elif operation.stops is None or not is_small(request):
                rates.spend(principal)
                held.enter_context(unread.request(principal))
                inputs = await _inputs(operation, request, plane, unread.body(principal))
            else:
                stopping = False
                try:
                    inputs = await _inputs(operation, request, plane, unread.body(principal))
                    stopping = operation.stops(context, inputs.get("body"), **of_stop)
                finally:
                    if not stopping:
                        rates.spend(principal)
                if not stopping:
                    held.enter_context(unread.request(principal))
            held.enter_context(connections.serving(request))
            held.enter_context(work.while_allowed(context.allowed))
            held.enter_context(asking(principal.account, principal.name))
            async with performing(operation, context, inputs) as answer:
                return await respond(request, answer)

    return endpoint


def _context(
    request: web.Request,
    shared: Shared,
    work: Work,
    admitted: Admitted,
    kept: Kept,
    spend: Callable[[], None],
) -> Context:
    return Context(
        shared,
        admitted.principal,
        work,
        request[REQUEST_ID],
        request.match_info,
        admitted.allowed,
        "text/event-stream" in request.headers.get("Accept", ""),
        request.headers.get("Last-Event-ID"),
        request.headers.get("Mcp-Session-Id"),
        request.headers.get("MCP-Protocol-Version"),
        kept,
        spend,
    )


async def _inputs(
    operation: Operation,
    request: web.Request,
    plane: ControlPlane,
    unread: AbstractContextManager[UnreadBody],
) -> dict[str, Any]:
    """The client's input in the form of the function's arguments. Raises: ValidationError."""
    inputs: dict[str, Any] = {name: request.match_info[name] for name in operation.parameters}
    query = read_query(request, operation.query or NoQuery)
    if operation.query is not None:
        inputs["query"] = query
    if operation.body is not None:
        body = await read_body(request, operation.body, unread, plane.aside, plane.levels)
        inputs["body"] = body
    if operation.upload:
        check_encoding(request)
        inputs["upload"] = arriving(request, UPLOAD_PACE)
    return inputs
