"""Connections of our HTTP clients: what a server sends before its answer is bounded."""

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler

# Answers with a status of 1xx before the real one; honest servers send one or two.
_MOST_INTERIM = 8
# The parser gets so much at once, until the answer has begun.
_SLICE = 4096


class BoundedConnector(aiohttp.TCPConnector):
    """Ends a connection whose server sends interim answers (1xx) again and again.

    Without it, as many are parsed as arrive, in one slice of the event loop.
    """

    def __init__(self, resolver: AbstractResolver | None = None, limit: int = 100) -> None:
        """`limit` connections at once."""
        super().__init__(resolver=resolver, limit=limit)
        loop = asyncio.get_running_loop()
        self._factory = partial(_BoundedHandler, loop)  # type: ignore[assignment]


class _BoundedHandler(ResponseHandler):
    """One connection; each of its requests may have a few interim answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._waits = False
        self._interim = 0

    def set_response_params(self, **params: Any) -> None:
        self._waits, self._interim = True, 0
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        while self._waits and data:
            super().data_received(data[:_SLICE])
            data = data[_SLICE:]
            if self._interim > _MOST_INTERIM:
                self._end()
                return
        if data:
            super().data_received(data)

    def feed_data(self, data: Any, size: int = 0) -> None:
        status = data[0].code
        if 100 <= status < 200 and status != 101:
            self._interim += 1
        else:
            self._waits = False
        super().feed_data(data, size)

    def _end(self) -> None:
        self._waits = False
        self.set_exception(aiohttp.ClientPayloadError("the server sends interim answers only"))
        if self.transport is not None:
            self.transport.abort()
