"""Passes a WebSocket on to another server: its bytes, in pieces, in both directions.

The server accepts or refuses it by its answer to the handshake. After that, nothing is read in
what passes, so a message may have any size, is never held as a whole, and may be compressed. Who
does not read holds the other side back.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Protocol

from aiohttp import StreamReader, hdrs, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import StreamWriter
from multidict import CIMultiDictProxy

from orchestrator.ground.errors import ValidationError
from orchestrator.ground.serving import stream
from orchestrator.ground.serving.headers import Headers, values
from orchestrator.ground.task_scope import TaskScope

# What is read of one side before the other has taken it.
_PIECE_BYTES = 32 * 1024
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==", re.ASCII)
_UPGRADE = ((hdrs.CONNECTION, "Upgrade"), (hdrs.UPGRADE, "websocket"))
_KEY_NAME = "Sec-WebSocket-Key"
_ACCEPT_NAME = "Sec-WebSocket-Accept"
_AGREED = ("Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions")


class Handshake(Protocol):
    """The head of a server's answer."""

    @property
    def status(self) -> int:
        """The status."""

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        """The headers."""


def is_websocket(request: web.Request) -> bool:
    """Whether it begins a WebSocket."""
    if request.headers.get(hdrs.UPGRADE, "").strip().lower() != "websocket":
        return False
    connection = ",".join(request.headers.getall(hdrs.CONNECTION, ())).lower().split(",")
    return "upgrade" in map(str.strip, connection)


def upgrade(request: web.Request) -> Headers:
    """The handshake for the server, if the request begins a WebSocket. Raises: ValidationError."""
    if not is_websocket(request):
        return []
    if request.method != "GET" or _KEY.fullmatch(_key(request)) is None:
        raise ValidationError("the handshake of the WebSocket is not valid", field=_KEY_NAME)
    names = (_KEY_NAME, "Sec-WebSocket-Version", *_AGREED)
    return [*_UPGRADE, *_named([*request.headers.items()], names)]


def is_accepted(request: web.Request, answer: Handshake) -> bool:
    """Whether the server's answer accepts the WebSocket that the request begins."""
    if answer.status != HTTPStatus.SWITCHING_PROTOCOLS or not is_websocket(request):
        return False
    proof = base64.b64encode(hashlib.sha1(f"{_key(request)}{_GUID}".encode()).digest())  # noqa: S324
    return answer.headers.get(_ACCEPT_NAME, "").strip() == proof.decode()


async def pass_websocket(
    request: web.Request,
    answer: Handshake,
    server: ResponseHandler | None,
    added: Headers,
    idle_seconds: float | None,
) -> web.StreamResponse:
    """Accepts it as the server did, and returns when either side has closed its connection.

    `server` is the connection of the answer; None: it has ended already.

    Raises: ConnectionError if one has gone; TimeoutError if nothing passes for so long.
    """
    if server is None:
        raise ConnectionResetError("the server has gone")
    told = _named([*answer.headers.items()], (_ACCEPT_NAME, *_AGREED))
    response = web.StreamResponse(status=answer.status, headers=[*_UPGRADE, *told, *added])
    response.force_close()
    await stream.begin(request, response)
    inside = _Arriving(server)
    server.read_timeout = None
    server.set_parser(inside, inside.stream)
    if not server.is_connected():
        inside.feed_eof()  # its connection has ended meanwhile
    outside = _Arriving(request.protocol)
    request.protocol.set_parser(outside)  # type: ignore[arg-type]
    to_server = StreamWriter(server, asyncio.get_running_loop())
    await _both((outside.stream, to_server.write), (inside.stream, response.write), idle_seconds)
    return response


class _Arriving:
    """What arrives on a connection after the handshake; aiohttp has such objects parse it."""

    def __init__(self, protocol: BaseProtocol) -> None:
        self.stream = StreamReader(protocol, _PIECE_BYTES, loop=asyncio.get_running_loop())

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Takes what has arrived; the connection is not over, and nothing is left."""
        self.stream.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        """The connection is over."""
        self.stream.feed_eof()


_Way = tuple[StreamReader, Callable[[bytes], Awaitable[None]]]


async def _both(one: _Way, other: _Way, idle_seconds: float | None) -> None:
    """Passes bytes on both ways until one side is over."""
    ways = TaskScope("a WebSocket that is passed on")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(idle_seconds) as idle:

        def seen() -> None:
            if idle_seconds is not None:
                idle.reschedule(loop.time() + idle_seconds)

        running = [ways.begin(_pass(*way, seen)) for way in (one, other)]
        try:
            await ways.one_ended()
        finally:
            await ways.close()
    for way in running:
        if not way.cancelled():
            way.result()


async def _pass(
    source: StreamReader, write: Callable[[bytes], Awaitable[None]], seen: Callable[[], None]
) -> None:
    while piece := await source.readany():
        seen()
        await write(piece)
        # Who reads fast is written to without waiting: others are served here.
        await asyncio.sleep(0)


def _named(headers: Headers, names: Sequence[str]) -> Headers:
    return [(name, value) for name in names for value in values(headers, name) if value.isascii()]


def _key(request: web.Request) -> str:
    return request.headers.get(_KEY_NAME, "").strip()
