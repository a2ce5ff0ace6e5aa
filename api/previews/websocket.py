"""Passes a WebSocket on to a program in a sandbox, message by message in both directions."""

import asyncio

from aiohttp import (
    ClientSession,
    ClientWebSocketResponse,
    ClientWSTimeout,
    WSMsgType,
    WSServerHandshakeError,
    web,
)

from api.http.sockets import begin
from api.previews.base_paths import base_paths, program_url, serves_elsewhere
from api.previews.headers import ADDED, Headers
from api.previews.pages import BadGatewayError
from api.previews.paths import PreviewPath
from orchestrator.ground.task_scope import together
from orchestrator.sandbox.ports.limits import PortLimits
from orchestrator.state.open_port import OpenPort

_CLOSE_SECONDS = 5.0
_GOING_AWAY = 1001
# Codes that may be sent: the others only describe what happened at one end.
_SENDABLE_CODES = frozenset({*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)})

Side = web.WebSocketResponse | ClientWebSocketResponse


def is_websocket(request: web.Request) -> bool:
    """Whether it begins a WebSocket."""
    return request.headers.get("Upgrade", "").strip().lower() == "websocket"


async def pass_websocket(
    request: web.Request,
    path: PreviewPath,
    port: OpenPort,
    client: ClientSession,
    headers: Headers,
    limits: PortLimits,
) -> web.StreamResponse:
    """Returns when both sides are closed.

    The program decides first, so that a client is not connected to nothing. Raises:
    BadGatewayError, aiohttp.ClientError, TimeoutError.
    """
    inside = await _accepted(request, path, port, client, headers, limits)
    async with inside:
        outside = web.WebSocketResponse(
            protocols=[inside.protocol] if inside.protocol else [],
            autoping=False,
            compress=False,
            max_msg_size=limits.message_bytes,
            timeout=_CLOSE_SECONDS,
        )
        outside.headers.update(ADDED)
        await begin(request, outside)
        async with asyncio.timeout(limits.idle_seconds) as idle, together() as start:
            start(_pump(outside, inside, idle, limits.idle_seconds))
            start(_pump(inside, outside, idle, limits.idle_seconds))
    return outside


async def _accepted(
    request: web.Request,
    path: PreviewPath,
    port: OpenPort,
    client: ClientSession,
    headers: Headers,
    limits: PortLimits,
) -> ClientWebSocketResponse:
    """The program's side of the WebSocket, below the base path where the program serves.

    Raises: BadGatewayError, aiohttp.ClientError, TimeoutError.
    """
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    bases = base_paths(path, port.base)
    refused: WSServerHandshakeError | None = None
    for base in bases:
        try:
            inside = await client.ws_connect(
                program_url(path, base),
                protocols=[name.strip() for name in offered if name.strip()],
                headers=headers,
                autoping=False,
                max_msg_size=limits.message_bytes,
                timeout=ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            )
        except WSServerHandshakeError as error:
            refused = refused or error
            if not serves_elsewhere(base, bases, error.status, None):
                break
        else:
            port.base = base
            return inside
    status = refused.status if refused is not None else None
    raise BadGatewayError(f"port {path.port} of the session accepts no WebSocket here: {status}")


async def _pump(source: Side, target: Side, idle: asyncio.Timeout, seconds: float) -> None:
    """Passes messages on until the source closes, and closes the target."""
    loop = asyncio.get_running_loop()
    while True:
        message = await source.receive()
        # A burst is received without waiting: others are served here.
        await asyncio.sleep(0)
        idle.reschedule(loop.time() + seconds)
        if message.type is WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await target.send_bytes(message.data)
        elif message.type is WSMsgType.PING:
            await target.ping(message.data)
        elif message.type is WSMsgType.PONG:
            await target.pong(message.data)
        else:
            break
    code = source.close_code or _GOING_AWAY
    await target.close(code=code if code in _SENDABLE_CODES else _GOING_AWAY)
