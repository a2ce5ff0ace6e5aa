"""Responses that are written piece by piece, to clients that may stop reading."""

import asyncio

from aiohttp import web

# A client that reads nothing for so long is cut off: it holds a handler and its buffers.
WRITE_SECONDS = 60.0
STREAM = web.RequestKey("stream", web.StreamResponse)


async def begin(request: web.Request, response: web.StreamResponse) -> None:
    """Sends the headers; from here on an error can only cut the response off."""
    request[STREAM] = response
    await response.prepare(request)


async def write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Writes a piece. Raises: ConnectionError when the client has gone, or does not read."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await response.write(data)
    except TimeoutError:
        abort(request)
        raise ConnectionResetError("the client does not read") from None


def abort(request: web.Request) -> None:
    """Drops the connection, so that the client sees that the response is not whole."""
    if request.transport is not None:
        request.transport.abort()
