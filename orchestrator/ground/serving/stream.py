"""Writes responses in pieces, to clients that may stop reading."""

import asyncio
from collections.abc import Awaitable

from aiohttp import web

# A client that reads nothing for this long is disconnected: it holds a handler and its buffers.
WRITE_SECONDS = 60.0
STREAM = web.RequestKey("stream", web.StreamResponse)


async def begin(request: web.Request, response: web.StreamResponse) -> None:
    """Sends the headers; from now on, an error can only cut the response off."""
    request[STREAM] = response
    await response.prepare(request)


async def write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Writes a piece. Raises: ConnectionError if the client has gone or does not read."""
    await within_time(request, response.write(data))
    # A client that reads fast enough is written to without waiting: others are served here.
    await asyncio.sleep(0)


async def within_time(request: web.Request, writing: Awaitable[None]) -> None:
    """Waits until it is written. Raises: ConnectionError as `write` does."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await writing
    except TimeoutError:
        abort(request)
        raise ConnectionResetError("the client does not read") from None


def abort(request: web.Request) -> None:
    """Drops the connection to show the client that the response is incomplete."""
    if request.transport is not None:
        request.transport.abort()
