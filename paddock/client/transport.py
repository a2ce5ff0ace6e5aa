"""Requests and answers: time-outs, retries, and translation of errors."""

import asyncio
import io
import json
import math
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from paddock.client import errors
from paddock.client.answers import json_object, not_paddock, refusal, translated
from paddock.client.resolver import Resolver
from paddock.client.retry import RetryPolicy
from paddock.client.sse import EventParser, ServerEvent
from paddock.client.websocket import Socket, connected

T = TypeVar("T")

_CONNECT_SECONDS = 5.0
# An idle stream has a heartbeat every 15 seconds.
_SILENCE_SECONDS = 45.0
_CHUNK_BYTES = 256 * 1024
# A host that vanished silently is detected after about a minute.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a client, in seconds and counts."""

    timeout: float
    retry: RetryPolicy
    reconnect: float
    ssl: SSLContext | None


class Pool:
    """The connections to one control plane. They are opened on use, and closed once."""

    def __init__(self, url: str, options: Options) -> None:
        self.url = _base_url(url)
        self.options = options
        self._http: aiohttp.ClientSession | None = None
        self._closed = False

    def http(self) -> aiohttp.ClientSession:
        """The open connections. Raises: RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("this client is closed")
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self.options.ssl or True,
                    socket_factory=_lasting_socket,
                    resolver=Resolver(),
                    limit=0,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # The download's length must be that of the file.
                headers={"Accept-Encoding": "identity", "User-Agent": "paddock-python"},
            )
        return self._http

    async def close(self) -> None:
        """Closes every connection."""
        self._closed = True
        if self._http is not None:
            await self._http.close()


class Transport:
    """Requests with one credential: an API key, or a session's handle.

    All methods raise UnreachableError, ConnectionLostError, NoAnswerError, NotPaddockError,
    OldServerError, and PaddockAPIError in the class of its code.
    """

    def __init__(self, pool: Pool, credential: str) -> None:
        # Text that an HTTP header can't contain is no credential, and must not get into an error's
        # text.
        if not credential or not credential.isascii() or not credential.isprintable():
            raise ValueError("the key must be printable ASCII, and not empty")
        self.pool = pool
        self.options = pool.options
        self._headers = {"Authorization": f"Bearer {credential}"}

    async def json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        statuses: tuple[int, ...] = (),
        **options: Any,
    ) -> dict[str, Any]:
        """The JSON object of a success, or of a failure with one of `statuses`."""
        if timeout is not None and not math.isfinite(timeout):
            raise errors.ArgumentError(f"a time-out is a finite number of seconds, not {timeout}")
        limit = aiohttp.ClientTimeout(
            total=timeout or self.options.timeout, sock_connect=_CONNECT_SECONDS
        )
        options["headers"] = headers = {**self._headers, **(options.get("headers") or {})}
        if body is not None:
            options |= _as_json(body, headers)

        async def once() -> dict[str, Any]:
            with translated(method, path):
                response = await self._send(method, path, params, limit, statuses, options)
                async with response:
                    return await json_object(response)

        return await self._retried(method, once)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        content_type: str,
        silence: float,
        heed: Callable[[Mapping[str, str]], None] | None = None,
        **options: Any,
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """The bytes of a success as they arrive; `silence`: seconds between two pieces.

        `heed` receives the headers first.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence)
        params = options.pop("params", None)
        options["headers"] = {**self._headers, **options.get("headers", {})}

        async def once() -> aiohttp.ClientResponse:
            with translated(method, path):
                return await self._send(method, path, params, limit, (), options)

        response = await self._retried(method, once)
        async with response:
            if response.content_type != content_type:
                raise not_paddock(response)
            if heed is not None:
                heed(response.headers)
            yield _pieces(response, method, path)

    @asynccontextmanager
    async def events(
        self,
        method: str,
        path: str,
        *,
        after: int | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[AsyncGenerator[ServerEvent, None]]:
        """The events of a stream as they arrive, after the id `after` if given."""
        headers = {"Accept": "text/event-stream", **(headers or {})}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        options = {"headers": headers} if body is None else _as_json(body, headers)
        media, silence = "text/event-stream", _SILENCE_SECONDS
        async with self.open(
            method, path, content_type=media, silence=silence, params=params, **options
        ) as pieces:
            yield _parsed(pieces)

    @asynccontextmanager
    async def websocket(
        self, path: str, params: Mapping[str, Any], protocol: str, most_bytes: int
    ) -> AsyncIterator[Socket]:
        """An open WebSocket, which is closed at the end."""
        url = _with_query(URL(self.pool.url + path, encoded=True), params)
        http = self.pool.http()
        if http.connector is None:
            raise RuntimeError("this client is closed")
        headers, connector = self._headers, http.connector
        async with connected(
            url, path, headers, connector, _SILENCE_SECONDS, protocol, most_bytes
        ) as socket:
            yield socket

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        limit: aiohttp.ClientTimeout,
        statuses: tuple[int, ...],
        options: dict[str, Any],
    ) -> aiohttp.ClientResponse:
        url = _with_query(URL(self.pool.url + path, encoded=True), params)
        if isinstance(data := options.get("data"), bytes):
            # Sent in pieces, because one large piece would block the loop.
            options = {**options, "data": io.BytesIO(data)}
        response = await self.pool.http().request(
            method,
            url,
            timeout=limit,
            # A redirect would send the credential elsewhere.
            allow_redirects=False,
            **options,
        )
        if 200 <= response.status < 300 or response.status in statuses:
            return response
        async with response:
            raise await refusal(response, method, path)

    async def _retried(self, method: str, once: Callable[[], Awaitable[T]]) -> T:
        started, failures = time.monotonic(), 0
        while True:
            try:
                return await once()
            except errors.PaddockError as error:
                failures += 1
                waited = time.monotonic() - started
                delay = self.options.retry.delay(method, error, failures, waited)
                if delay is None:
                    raise
            await asyncio.sleep(delay)


def _as_json(body: Any, headers: Mapping[str, str]) -> dict[str, Any]:
    """The request options for that body."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    # A lone surrogate can't be UTF-8; its backslash escape is also its JSON escape.
    data = text.encode("utf-8", "backslashreplace")
    return {"headers": {**headers, "Content-Type": "application/json"}, "data": data}


def _base_url(text: str) -> str:
    try:
        url = URL(text)
        proper = url.scheme in ("http", "https") and bool(url.host) and url.user is None
    except ValueError:
        proper = False
    if not proper or url.query_string or url.fragment:
        raise ValueError(f"the URL must be http://host:port or https://host:port, not {text!r}")
    return str(url).rstrip("/")


def _with_query(url: URL, params: Mapping[str, Any] | None) -> URL:
    known = {name: _parameter(value) for name, value in (params or {}).items() if value is not None}
    return url.with_query(known) if params else url


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lasting_socket(address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


async def _pieces(
    response: aiohttp.ClientResponse, method: str, path: str
) -> AsyncGenerator[bytes, None]:
    while True:
        with translated(method, path):
            piece = await response.content.readany()
        if not piece:
            return
        for start in range(0, len(piece), _CHUNK_BYTES):
            yield piece[start : start + _CHUNK_BYTES]


async def _parsed(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[ServerEvent, None]:
    parser = EventParser()
    async for piece in pieces:
        for event in parser.feed(piece):
            yield event
