"""Requests and answers: time-outs, retries, and translation of errors."""

import asyncio
import io
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from paddock.client import errors
from paddock.client.answers import (
    Answer,
    answer_of,
    json_object,
    not_paddock,
    read_answer,
    refusal,
    translated,
)
from paddock.client.http_messages import request_bytes
from paddock.client.loop_thread import in_loop, on_loop
from paddock.client.pool import Pool
from paddock.client.renewing import RenewedKey, Renewing
from paddock.client.sockets import CONNECT_SECONDS
from paddock.client.sse import EventParser, ServerEvent
from paddock.client.trace_context import trace_headers
from paddock.client.websocket import Socket, connected

T = TypeVar("T")

# An idle stream has a heartbeat every 15 seconds.
_SILENCE_SECONDS = 45.0
_CHUNK_BYTES = 256 * 1024
# A larger body is sent by aiohttp in pieces, because one large piece would block the loop.
_MOST_LEAN_BYTES = 256 * 1024
# What a socket takes whole, so that an early answer is read.
_MOST_BLOCKING_BYTES = 16 * 1024
_LEAN_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_CALLER = "/api/caller"
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class Transport:
    """Requests with one credential: an API key, or a session's handle.

    All methods raise UnreachableError, ConnectionLostError, NoAnswerError, NotPaddockError,
    OldServerError, and PaddockAPIError in the class of its code.
    """

    def __init__(self, pool: Pool, credential: str | RenewedKey) -> None:
        self.pool = pool
        self.options = pool.options
        self._credential = credential
        self._renewing: Renewing | None = None
        if not isinstance(credential, str):
            self._renewing = Renewing(credential, self._present)
        self._fixed = _bearer(credential if isinstance(credential, str) else credential.key)

    @property
    def _headers(self) -> dict[str, str]:
        """The credential as it is now."""
        if isinstance(self._credential, str):
            return self._fixed
        return _bearer(self._credential.key)

    async def _present(self) -> None:
        """Shows the credential to the control plane."""
        headers, seconds = {**self._headers}, self.options.timeout
        with translated("GET", _CALLER):
            await self._full("GET", _CALLER, None, seconds, headers, None)

    async def json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        statuses: tuple[int, ...] = (),
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The JSON object of a success, or of a failure with one of `statuses`.

        `body` is sent as JSON, `data` as it is. Raises: ArgumentError if nothing can be sent.
        """
        if timeout is not None and not math.isfinite(timeout):
            raise errors.ArgumentError(f"a time-out is a finite number of seconds, not {timeout}")
        seconds = timeout or self.options.timeout
        if body is not None:
            data, headers = _as_json(body), {**(headers or {}), "Content-Type": "application/json"}
        given = {**trace_headers(), **(headers or {})}
        if not path.startswith("/"):
            raise errors.ArgumentError("a path begins with a slash")
        ask = self._lean if self._is_lean(method, data) else self._full

        async def once() -> dict[str, Any]:
            with translated(method, path):
                sent = {**self._headers, **given}
                answer = await ask(method, path, params, seconds, sent, data)
            if 200 <= answer.http_status < 300 or answer.http_status in statuses:
                return json_object(answer)
            raise refusal(answer, method, path)

        if self._renewing is None:
            return await self._retried(method, once)
        async with self._renewing.used():
            return await self._retried(method, once)

    def _is_lean(self, method: str, data: Any) -> bool:
        """Whether neither the connection nor the message needs aiohttp."""
        small = data is None or (isinstance(data, bytes) and len(data) <= _MOST_LEAN_BYTES)
        return self.pool.plain and small and method in _LEAN_METHODS

    async def _lean(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        seconds: float,
        headers: Mapping[str, str],
        data: Any,
    ) -> Answer:
        target = self.pool.prefix + path
        if params:
            target = _with_query(URL(target, encoded=True), params).raw_path_qs
        if data is not None and "Content-Type" not in headers:
            headers = {**headers, "Content-Type": "application/octet-stream"}
        request = request_bytes(method, target, self.pool.fixed, headers, data)
        if len(request) > _MOST_BLOCKING_BYTES:
            await on_loop()
        if in_loop():
            message = await self.pool.lean().exchange(method, request, seconds)
        else:
            message = self.pool.blocking().exchange(method, request, seconds)
        return answer_of(message, self.pool.origin)

    async def _full(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        seconds: float,
        headers: Mapping[str, str],
        data: Any,
    ) -> Answer:
        await on_loop()
        limit = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        options = {"headers": headers} if data is None else {"headers": headers, "data": data}
        async with await self._send(method, path, params, limit, options) as response:
            return await read_answer(response)

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
        await on_loop()
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        params = options.pop("params", None)
        given = {**trace_headers(), **options.get("headers", {})}

        async def once() -> aiohttp.ClientResponse:
            with translated(method, path):
                options["headers"] = {**self._headers, **given}
                response = await self._send(method, path, params, limit, options)
                if 200 <= response.status < 300:
                    return response
                async with response:
                    answer = await read_answer(response)
            raise refusal(answer, method, path)

        async with self._used(), await self._retried(method, once) as response:
            if response.content_type != content_type:
                raise not_paddock(await read_answer(response))
            if heed is not None:
                heed(response.headers)
            yield _pieces(response, method, path)

    @asynccontextmanager
    async def events(
        self,
        method: str,
        path: str,
        *,
        after: int | str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[AsyncGenerator[ServerEvent, None]]:
        """The events of a stream as they arrive, after the id `after` if given."""
        options: dict[str, Any] = {}
        headers = {"Accept": "text/event-stream", **(headers or {})}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        if body is not None:
            options["data"], headers["Content-Type"] = _as_json(body), "application/json"
        media, silence = "text/event-stream", _SILENCE_SECONDS
        async with self.open(
            method,
            path,
            content_type=media,
            silence=silence,
            params=params,
            headers=headers,
            **options,
        ) as pieces:
            yield _parsed(pieces)

    @asynccontextmanager
    async def websocket(
        self, path: str, params: Mapping[str, Any], protocol: str, most_bytes: int
    ) -> AsyncIterator[Socket]:
        """An open WebSocket, which is closed at the end."""
        await on_loop()
        url = _with_query(URL(self.pool.url + path, encoded=True), params)
        http = self.pool.http()
        if http.connector is None:
            raise RuntimeError("this client is closed")
        connector = http.connector
        async with self._used():
            headers = {**self._headers, **trace_headers()}
            async with connected(
                url, path, headers, connector, _SILENCE_SECONDS, protocol, most_bytes
            ) as socket:
                yield socket

    def _used(self) -> AbstractAsyncContextManager[None]:
        """A credential that expires is renewed meanwhile."""
        return nullcontext() if self._renewing is None else self._renewing.used()

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        limit: aiohttp.ClientTimeout,
        options: dict[str, Any],
    ) -> aiohttp.ClientResponse:
        url = _with_query(URL(self.pool.url + path, encoded=True), params)
        if isinstance(data := options.get("data"), bytes):
            # Sent in pieces, because one large piece would block the loop.
            options = {**options, "data": io.BytesIO(data)}
        return await self.pool.http().request(
            method,
            url,
            timeout=limit,
            # A redirect would send the credential elsewhere.
            allow_redirects=False,
            **options,
        )

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
            await on_loop()
            await asyncio.sleep(delay)


def _bearer(credential: str) -> dict[str, str]:
    # Text that an HTTP header can't contain is no credential, and must not get into an error's
    # text.
    if not credential or not credential.isascii() or not credential.isprintable():
        raise ValueError("the key must be printable ASCII, and not empty")
    return {"Authorization": f"Bearer {credential}"}


def _as_json(body: Any) -> bytes:
    # A lone surrogate can't be UTF-8; its backslash escape is also its JSON escape.
    return _ENCODER.encode(body).encode("utf-8", "backslashreplace")


def _with_query(url: URL, params: Mapping[str, Any] | None) -> URL:
    known = {name: _parameter(value) for name, value in (params or {}).items() if value is not None}
    return url.with_query(known) if params else url


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
