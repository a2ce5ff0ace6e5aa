"""Adapts an operation for aiohttp: reads its request and writes its answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from api.access import Access
from api.context import Context, Work
from api.http.answer import respond
from api.http.auth import Admitted, admit
from api.http.body import IDLE_SECONDS, check_encoding, read_body
from api.http.origin import check_origin
from api.http.query import read_query
from api.http.sockets import check_handshake
from api.limits import RequestRates
from api.mcp.conversations import Conversations
from api.observability import PRINCIPAL, REQUEST_ID
from api.operation import Operation
from api.performing import performing
from orchestrator.control_plane import ControlPlane
from orchestrator.errors import ValidationError
from orchestrator.store.round_robin import asking
from paddock.contract.requests import NoQuery

# Requests to stop something are not longer than this.
_SMALL_BYTES = 4096
_CHUNK_BYTES = 256 * 1024


def make_endpoint(
    operation: Operation,
    plane: ControlPlane,
    work: Work,
    rates: RequestRates,
    conversations: Conversations,
) -> Handler:
    """The operation as a request handler; it checks the credential first, then the input."""

    async def endpoint(request: web.Request) -> web.StreamResponse:
        if operation.own_origin:
            check_origin(request.headers.getall("Origin", ()), request.headers.get("Host", ""))
        admitted = admit(plane, request, operation)
        principal = request[PRINCIPAL] = admitted.principal
        if operation.socket:
            check_handshake(request)
        spend = partial(rates.spend, principal)
        context = _context(request, plane, work, admitted, conversations, spend)
        context.know_secrets()
        if operation.access is Access.OPEN:
            inputs = await _inputs(operation, request, plane)
        elif operation.stops is None or not _is_small(request):
            rates.spend(principal)
            inputs = await _inputs(operation, request, plane)
        else:
            stopping = False
            try:
                inputs = await _inputs(operation, request, plane)
                stopping = operation.stops(context, inputs.get("body"))
            finally:
                if not stopping:
                    rates.spend(principal)
        with work.while_allowed(context.allowed), asking(principal.account, principal.name):
            async with performing(operation, context, inputs) as answer:
                return await respond(request, answer)

    return endpoint


def _context(
    request: web.Request,
    plane: ControlPlane,
    work: Work,
    admitted: Admitted,
    conversations: Conversations,
    spend: Callable[[], None],
) -> Context:
    return Context(
        plane,
        admitted.principal,
        work,
        request[REQUEST_ID],
        request.match_info,
        admitted.allowed,
        "text/event-stream" in request.headers.get("Accept", ""),
        request.headers.get("Last-Event-ID"),
        request.headers.get("Mcp-Session-Id"),
        request.headers.get("MCP-Protocol-Version"),
        conversations,
        spend,
    )


async def _inputs(
    operation: Operation, request: web.Request, plane: ControlPlane
) -> dict[str, Any]:
    """The client's input in the form of the function's arguments. Raises: ValidationError."""
    inputs: dict[str, Any] = {name: request.match_info[name] for name in operation.parameters}
    query = read_query(request, operation.query or NoQuery)
    if operation.query is not None:
        inputs["query"] = query
    if operation.body is not None:
        inputs["body"] = await read_body(request, operation.body, plane.aside, plane.levels)
    if operation.upload:
        check_encoding(request)
        inputs["upload"] = _chunks(request)
    return inputs


async def _chunks(request: web.Request) -> AsyncIterator[bytes]:
    """The request's body as it arrives. Raises: ValidationError if it stops arriving."""
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                chunk = await request.content.read(_CHUNK_BYTES)
        except TimeoutError:
            raise ValidationError(f"the body stopped for {IDLE_SECONDS:g} s") from None
        if not chunk:
            return
        yield chunk


def _is_small(request: web.Request) -> bool:
    """Whether reading the body costs no more than refusing the request."""
    length = request.content_length
    return not request.can_read_body if length is None else length <= _SMALL_BYTES
