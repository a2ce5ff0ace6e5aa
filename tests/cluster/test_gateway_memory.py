"""A gateway holds little of what passes: measured in a process of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer

from tests.bench.gateway import idle_streams
from tests.support.box import PATIENCE

pytestmark = pytest.mark.slow

_PIECE = bytes(256 * 1024)
_PIECES = 1200  # 300 MiB
_MOST_GROWTH_KIB = 8 * 1024


class Node:
    """What passes at the node, in bytes."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.full = asyncio.Event()

    async def download(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(_PIECES):
            writing = asyncio.ensure_future(response.write(_PIECE))
            try:
                await asyncio.wait_for(asyncio.shield(writing), 1)
            except TimeoutError:
                self.full.set()
                await writing
            self.sent += len(_PIECE)
        await response.write_eof()
        return response

    async def upload(self, request: web.Request) -> web.StreamResponse:
        async for piece in request.content.iter_any():
            self.received += len(piece)
        return web.json_response({"received": self.received})


@asynccontextmanager
async def _passing() -> AsyncIterator[tuple[Node, str, int]]:
    """A node, the gateway's address for a session there, and the gateway's process."""
    node = Node()
    app = web.Application(client_max_size=2**40)
    app.router.add_get("/{path:.*}", node.download)
    app.router.add_put("/{path:.*}", node.upload)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.gateway_process"),
        *(f"http://127.0.0.1:{server.port}", "web"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield node, f"http://127.0.0.1:{port}/api/sessions/web/files/x", process.pid
    finally:
        process.stdin.close()
        await process.wait()
        await server.close()


def _peak_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


async def test_300_mib_both_ways() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(_PIECES):
            yield _PIECE

    timeout = ClientTimeout(total=PATIENCE)
    async with _passing() as (_, url, pid), ClientSession(timeout=timeout) as client:
        before = _peak_kib(pid)
        async with client.get(url) as answer:
            size = 0
            async for piece in answer.content.iter_any():
                size += len(piece)
        assert size == _PIECES * len(_PIECE)
        async with client.put(url, data=pieces()) as answer:
            assert await answer.json() == {"received": size}
        assert _peak_kib(pid) - before < _MOST_GROWTH_KIB


async def test_an_idle_stream_costs_little() -> None:
    """Of 10,000, with TLS to the node, a gateway has less than 1 GiB."""
    (grown,) = (await idle_streams(300)).figures
    assert grown < 100


async def test_who_does_not_read_holds_the_node_back() -> None:
    async with _passing() as (node, url, pid):
        before = _peak_kib(pid)
        port = int(url.split(":")[2].partition("/")[0])
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /api/sessions/web/files/x HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            await node.full.wait()
        # What sockets hold is the kernel's: some MiB on each of two connections.
        assert node.sent < 64 * len(_PIECE)
        assert _peak_kib(pid) - before < _MOST_GROWTH_KIB
        writer.transport.abort()
