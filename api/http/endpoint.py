"""Adapts an operation for aiohttp: reads its request and writes its answer."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler
from pydantic import BaseModel

from api.http.answer import respond
from api.http.auth import Admitted, admit, check_origin
from api.http.body import UPLOAD_PACE, arriving, check_encoding, is_small, read_body
from api.http.bounds import Bounds, UnreadBody
from api.http.middleware import PRINCIPAL, REQUEST_ID
from api.http.sockets import check_handshake
from api.shape import preconditions
from api.shape.access import Access
from api.shape.context import Context, Kept, Shared, Work
from api.shape.operation import Operation
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.round_robin import asking
from orchestrator.settings import requests
from paddock.contract.requests import NoQuery

Model = TypeVar("Model", bound=BaseModel)


def make_endpoint(
    operation: Operation,
    plane: ControlPlane,
    shared: Shared,
    work: Work,
    kept: Kept,
    bounds: Bounds,
) -> Handler:
    """The operation as a request handler, which checks the credential first, then the input."""

    rates, unread, connections = bounds
    of_stop = shared.services.of_stop[operation.id]

    async def endpoint(request: web.Request) -> web.StreamResponse:
        if operation.own_origin:
            origins = request.headers.getall("Origin", ())
            check_origin(origins, request.headers.get("Host", ""), plane.settings.cors_origins)
        admitted = admit(plane, request, operation)
        principal = request[PRINCIPAL] = admitted.principal
        if operation.socket:
            check_handshake(request)
        spend = partial(rates.spend, principal)
        context = _context(request, shared, work, admitted, kept, spend).of(operation)
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
            async with context.performing(operation, inputs) as answer:
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
        {name: request.headers[name] for name in preconditions.HEADERS if name in request.headers},
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


def read_query(request: web.Request, model: type[Model]) -> Model:
    """The query string as `model`. Raises: ValidationError naming the parameter."""
    return requests.read_query(request.rel_url.raw_query_string, model)
