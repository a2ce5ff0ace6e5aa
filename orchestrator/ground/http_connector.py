"""Connections of our HTTP clients, with a limit to what a server sends before its answer."""

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler

# Answers with a status of 1xx before the real one; honest servers send one or two.
_MOST_INTERIM = 8
# Until the answer has begun, the parser gets so many bytes at once.
_SLICE = 4096
_MOST_HEAD = 128 * 1024


class BoundedConnector(aiohttp.TCPConnector):
    """Ends a connection whose server sends interim answers (1xx), or a head, without an end.

    aiohttp would parse all that have arrived in one slice of the event loop.
    """

    def __init__(self, resolver: AbstractResolver | None = None, limit: int = 100) -> None:
        """`limit` connections at once."""
        super().__init__(resolver=resolver, limit=limit)
        loop = asyncio.get_running_loop()
        self._factory = partial(BoundedHandler, loop)  # type: ignore[assignment]


class BoundedHandler(ResponseHandler):
    """One connection, which accepts few bytes and interim answers before each answer.

    A body may come with its head, and may have any size.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most_head: int = _MOST_HEAD) -> None:
        super().__init__(loop)
        self._most_head = most_head
        self._waits = False
        self._left = 0
        self._interim = 0

    def set_response_params(self, **params: Any) -> None:
        """Begins to count: a request is sent, and its answer is awaited."""
        self._waits, self._left, self._interim = True, self._most_head, 0
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Passes data to the parser, in slices until the answer has begun.

        Without data, the parser goes on with what it had kept while nobody read.
        """
        if not data:
            super().data_received(data)
            return
        while self._waits and data:
            part, data = data[:_SLICE], data[_SLICE:]
            self._left -= len(part)
            super().data_received(part)
            if self._interim > _MOST_INTERIM:
                self._end("the server sends interim answers only")
            elif self._waits and self._left <= 0:
                self._end("the answer's head is too long")
            else:
                continue
            return
        if data:
            super().data_received(data)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Takes a parsed head, which is a message and its body, from the parser."""
        status = data[0].code
        if 100 <= status < 200 and status != 101:
            self._interim += 1
        else:
            self._waits = False
        super().feed_data(data, size)

    def _end(self, why: str) -> None:
        self._waits = False
        self.set_exception(aiohttp.ClientPayloadError(why))
        if self.transport is not None:
            self.transport.abort()
