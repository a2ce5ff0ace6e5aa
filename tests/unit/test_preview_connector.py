"""What programs in sandboxes send before their answers is bounded; what comes with them is not."""

import asyncio
import socket

import pytest
from aiohttp import ClientError, ClientSession

from api.previews.forwarding import TunnelConnector
from tests.support.box import PATIENCE

_HEAD_BYTES = 128 * 1024


async def answered(sent: bytes) -> bytes:
    """The body of an answer that comes at once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)

    async def serve() -> None:
        reader, writer = await asyncio.open_connection(sock=theirs)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await reader.read()
        writer.close()

    async def connect() -> socket.socket:
        return ours

    serving = asyncio.create_task(serve())
    connector = TunnelConnector(connect, _HEAD_BYTES)
    try:
        async with (
            ClientSession(connector=connector) as client,
            client.get("http://localhost:1/") as response,
        ):
            return await response.read()
    finally:
        await asyncio.wait([serving])


async def test_a_long_body_may_come_with_its_head() -> None:
    body = b"x" * 400_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert await answered(head + body) == body
    assert await answered(b"HTTP/1.1 103 Early Hints\r\n\r\n" + head + body) == body


@pytest.mark.parametrize(
    ("sent", "wrong"),
    [
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000, "interim answers only"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: %s\r\n" % (b"x" * 8000) * 17, "too long"),
    ],
)
async def test_what_comes_before_is_bounded(sent: bytes, wrong: str) -> None:
    with pytest.raises(ClientError, match=wrong):
        await answered(sent)


async def test_who_reads_slowly_gets_the_end() -> None:
    """The parser keeps what arrives while nobody reads, and goes on with it without new data."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def connect() -> socket.socket:
        return ours

    async with (
        asyncio.timeout(PATIENCE),
        ClientSession(connector=TunnelConnector(connect, _HEAD_BYTES), read_bufsize=4096) as client,
    ):
        theirs.sendall(head + chunk * 20 + b"0\r\n\r\n")
        async with client.get("http://localhost:1/") as response:
            size = 0
            while piece := await response.content.read(1000):
                size += len(piece)
        theirs.close()
    assert size == 20 * 4096
