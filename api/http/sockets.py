"""What all WebSockets have in common: handshake, bounds, and closing."""

import asyncio
from contextlib import suppress

from aiohttp import WSCloseCode, WSMsgType, web

from orchestrator.ground.errors import ValidationError
from orchestrator.ground.serving import stream

# The subprotocols, of which the server picks the one of the address.
TERMINAL = "paddock.terminal"
RUN = "paddock.run"
PROTOCOLS = (TERMINAL, RUN)
# A connection that answers no ping is dropped.
_HEARTBEAT_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
# Of the text with which a WebSocket is closed.
_MOST_REASON_BYTES = 123
# What is parsed at once, before others are served: a burst may be thousands of frames.
SLICE_BYTES = 16 * 1024


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
        # `Frames` answers pings, and counts them.
        autoping=False,
        compress=False,
        max_msg_size=most_bytes,
    )


async def begin(request: web.Request, socket: web.WebSocketResponse) -> None:
    """Accepts the WebSocket; from now on, what arrives is parsed in small slices."""
    # An attribute of asyncio's transports, which are read by this many bytes.
    setattr(request.transport, "max_size", SLICE_BYTES)  # noqa: B010 - not in its type
    await stream.begin(request, socket)


async def send(request: web.Request, socket: web.WebSocketResponse, data: bytes | str) -> None:
    """Sends a frame. Raises: ConnectionError if the client has gone or does not read."""
    sent = socket.send_bytes(data) if isinstance(data, bytes) else socket.send_str(data)
    await stream.within_time(request, sent)


async def close(socket: web.WebSocketResponse, code: WSCloseCode, reason: str) -> None:
    """Closes it, with the beginning of the reason."""
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await socket.close(code=code, message=_shortened(reason))


async def cut_off(
    request: web.Request, socket: web.WebSocketResponse, code: WSCloseCode, reason: str
) -> None:
    """Closes it without waiting for the client's answer, as more of its frames cost too much."""
    if request.transport is None:
        return
    request.transport.pause_reading()
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            frame = code.to_bytes(2, "big") + _shortened(reason)
            await socket.send_frame(frame, WSMsgType.CLOSE)
    request.transport.close()


def _shortened(reason: str) -> bytes:
    return reason.encode()[:_MOST_REASON_BYTES].decode("utf-8", "ignore").encode()
