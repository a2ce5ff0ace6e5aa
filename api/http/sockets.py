"""What WebSockets have in common: their handshake, their bounds, and how they are closed."""

import asyncio
from contextlib import suppress

from aiohttp import WSCloseCode, web

from api.http import stream
from api.http.ticket import PROTOCOLS
from orchestrator.errors import ValidationError

# A connection that answers no ping is dropped.
_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
# Of the text with which a WebSocket is closed.
_MOST_REASON_BYTES = 123


def check_handshake(request: web.Request) -> None:
    """Raises: ValidationError unless the request begins a WebSocket."""
    if not web.WebSocketResponse(protocols=PROTOCOLS).can_prepare(request):
        raise ValidationError("this address is for WebSockets only", field="Upgrade")


def socket_for(protocol: str, most_bytes: int) -> web.WebSocketResponse:
    """A WebSocket of that subprotocol, whose client sends at most so many bytes in a message."""
    return web.WebSocketResponse(
        protocols=(protocol,),
        heartbeat=_HEARTBEAT_SECONDS,
        timeout=_CLOSE_SECONDS,
        compress=False,
        max_msg_size=most_bytes,
    )


async def send(request: web.Request, socket: web.WebSocketResponse, data: bytes | str) -> None:
    """Sends a frame. Raises: ConnectionError if the client has gone or does not read."""
    try:
        async with asyncio.timeout(stream.WRITE_SECONDS):
            if isinstance(data, bytes):
                await socket.send_bytes(data)
            else:
                await socket.send_str(data)
    except TimeoutError:
        stream.abort(request)
        raise ConnectionResetError("the client does not read") from None


async def close(socket: web.WebSocketResponse, code: WSCloseCode, reason: str) -> None:
    """Closes it, with the beginning of the reason."""
    text = reason.encode()[:_MOST_REASON_BYTES].decode("utf-8", "ignore").encode()
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await socket.close(code=code, message=text)
