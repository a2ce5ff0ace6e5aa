"""Passes a request on to a program in a sandbox, and its answer back, as they come."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from aiohttp import (
    BaseConnector,
    ClientError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    hdrs,
    web,
)
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace

from api.previews.base_paths import base_paths, program_url, serves_elsewhere
from api.previews.headers import added, for_client, for_program
from api.previews.pages import BadGatewayError
from api.previews.paths import PreviewPath
from orchestrator.ground.http_connector import BoundedHandler
from orchestrator.ground.serving import stream
from orchestrator.ground.serving.headers import Headers
from orchestrator.ground.serving.websocket import is_accepted, pass_websocket, upgrade
from orchestrator.sandbox.ports.limits import PortLimits
from orchestrator.state.open_port import OpenPort

_CHUNK_BYTES = 64 * 1024
_ADDED_BY_DEFAULT: Sequence[str] = (
    hdrs.USER_AGENT,
    hdrs.ACCEPT,
    hdrs.ACCEPT_ENCODING,
    hdrs.CONTENT_TYPE,
)


class TunnelConnector(BaseConnector):
    """Makes each connection by `connect`, with at most `head_bytes` before an answer begins."""

    def __init__(self, connect: Callable[[], Awaitable[socket.socket]], head_bytes: int) -> None:
        super().__init__(force_close=True)
        self._connect_tunnel = connect
        self._head_bytes = head_bytes

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        """Raises: the errors of `connect`."""
        tunnel = await self._connect_tunnel()
        loop = asyncio.get_running_loop()
        factory = partial(BoundedHandler, loop, self._head_bytes)
        try:
            _, handler = await loop.create_unix_connection(factory, sock=tunnel)
        except BaseException:
            tunnel.close()
            raise
        return handler


async def forward(
    request: web.Request,
    path: PreviewPath,
    port: OpenPort,
    connect: Callable[[], Awaitable[socket.socket]],
    limits: PortLimits,
) -> web.StreamResponse:
    """Answers the request with the program's answer, which may be below a base path.

    Raises: BadGatewayError, the errors of `connect`; ConnectionError if the client has gone.
    """
    async with ClientSession(
        connector=TunnelConnector(connect, limits.head_bytes),
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=None, sock_read=limits.idle_seconds),
        skip_auto_headers=_ADDED_BY_DEFAULT,
        auto_decompress=False,
        read_bufsize=_CHUNK_BYTES,
        max_line_size=limits.head_bytes // 4,
        max_field_size=limits.head_bytes // 4,
    ) as client:
        sent = [*request.headers.items()]
        headers = [*for_program(sent, path, request.scheme, request.host), *upgrade(request)]
        try:
            return await _pass(request, path, port, client, headers, limits)
        except (ClientError, TimeoutError) as error:
            if request.get(stream.STREAM) is not None:
                stream.abort(request)
                raise ConnectionResetError("the program's answer ended early") from None
            late = isinstance(error, TimeoutError)
            why = "does not answer" if late else "does not answer as HTTP has it"
            raise BadGatewayError(f"port {path.port} of the session {why}") from None


async def _pass(
    request: web.Request,
    path: PreviewPath,
    port: OpenPort,
    client: ClientSession,
    headers: Headers,
    limits: PortLimits,
) -> web.StreamResponse:
    async with AsyncExitStack() as answers:
        answer, base = await _ask(request, path, port, client, headers, limits, answers)
        if is_accepted(request, answer):
            server = None if answer.connection is None else answer.connection.protocol
            return await pass_websocket(request, answer, server, added(path), limits.idle_seconds)
        if answer.status < 200:
            raise BadGatewayError(f"port {path.port} of the session changes the protocol")
        response = web.StreamResponse(
            status=answer.status, headers=for_client([*answer.headers.items()], path, base)
        )
        await stream.begin(request, response)
        async for chunk in answer.content.iter_any():
            async with asyncio.timeout(limits.idle_seconds):
                await response.write(chunk)
        await response.write_eof()
        return response


async def _ask(
    request: web.Request,
    path: PreviewPath,
    port: OpenPort,
    client: ClientSession,
    headers: Headers,
    limits: PortLimits,
    answers: AsyncExitStack,
) -> tuple[ClientResponse, str]:
    """The program's answer, and the base path below which it serves; `answers` closes it."""
    body = _body(request, limits.idle_seconds) if request.can_read_body else None
    bases = base_paths(path, port.base)
    if body is not None or request.method not in ("GET", "HEAD"):
        bases = bases[:1]  # the request can't be repeated
    first: ClientResponse | None = None
    for base in bases:
        answer = await answers.enter_async_context(
            client.request(
                request.method,
                program_url(path, base),
                headers=headers,
                data=body,
                allow_redirects=False,
            )
        )
        if not serves_elsewhere(base, bases, answer.status, answer.headers.get("Location")):
            if not path.own_host:
                port.base = base
            return answer, base
        first = first or answer
    assert first is not None  # noqa: S101 - there is always a base path
    return first, bases[0]


async def _body(request: web.Request, idle_seconds: float) -> AsyncIterator[bytes]:
    while True:
        async with asyncio.timeout(idle_seconds):
            chunk = await request.content.readany()
        if not chunk:
            return
        yield chunk
