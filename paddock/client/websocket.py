"""A WebSocket to the control plane: refusals are errors with their problem document."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
from yarl import URL

from paddock.client.answers import object_of, read_answer, refusal, translated
from paddock.client.errors import ConnectionLostError, NotPaddockError

_CLOSE_SECONDS = 2.0


class Socket:
    """One open WebSocket: bytes, and JSON objects as text."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, path: str) -> None:
        self._socket = socket
        self._path = path

    async def receive(self) -> bytes | dict[str, Any]:
        """The next frame. Raises: ConnectionLostError once it is closed, with the reason."""
        with translated("GET", self._path):
            message = await self._socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            data: bytes = message.data
            return data
        if message.type is aiohttp.WSMsgType.TEXT:
            told = object_of(message.data)
            if told is not None:
                return told
            raise NotPaddockError("the WebSocket sent text that is not a JSON object")
        reason = message.extra if isinstance(message.extra, str) else None
        raise ConnectionLostError(f"GET {self._path}: {reason or 'connection lost'}")

    async def send(self, frame: bytes | Mapping[str, Any]) -> None:
        """Sends a frame."""
        with translated("GET", self._path):
            if isinstance(frame, bytes):
                await self._socket.send_bytes(frame)
            else:
                await self._socket.send_json(frame)


@asynccontextmanager
async def connected(
    url: URL,
    path: str,
    headers: Mapping[str, str],
    connector: aiohttp.BaseConnector,
    silence: float,
    protocol: str,
    most_bytes: int,
) -> AsyncIterator[Socket]:
    """An open WebSocket, which is closed at the end; a message has at most `most_bytes`.

    Raises: the errors of a request.
    """
    tracing = aiohttp.TraceConfig()

    async def check(_session: Any, _context: Any, seen: aiohttp.TraceRequestEndParams) -> None:
        # The handshake's own error has no document.
        if seen.response.status != HTTPStatus.SWITCHING_PROTOCOLS:
            raise refusal(await read_answer(seen.response), "GET", path)

    tracing.on_request_end.append(check)
    async with aiohttp.ClientSession(
        connector=connector,
        connector_owner=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "paddock-python"},
        trace_configs=[tracing],
    ) as session:
        with translated("GET", path):
            socket = await session.ws_connect(
                url,
                protocols=(protocol,),
                headers=headers,
                heartbeat=silence,
                max_msg_size=most_bytes,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            )
        async with socket:
            yield Socket(socket, path)
