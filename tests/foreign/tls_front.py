"""A reverse proxy with TLS and host names of its own, as the documents describe one for E2B.

No name server knows the names: clients reach them through a proxy, which leads every name here.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from yarl import URL

from orchestrator.sandbox.egress.authority import Authority, public_directory
from sandbox_agent.decide.protocol import CA_BUNDLE_NAME

_CHUNK = 64 * 1024
_PATH = "/compat/e2b"
_HOST = re.compile(rb"\r\nhost: *([^\r]*)", re.IGNORECASE)


class Front(NamedTuple):
    """The proxy through which clients reach the names, and the roots that they must trust."""

    proxy: str
    roots: Path


@asynccontextmanager
async def front(domain: str, api: str, ports: str, directory: Path) -> AsyncIterator[Front]:
    """Serves `api.DOMAIN` by the API at that URL, and all other names below by that of ports."""
    context = Authority(directory).context(f"*.{domain}")

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _head(reader, writer)
        if not head:
            return
        host = _HOST.search(head)
        assert host is not None, head
        url = URL(ports)
        if host[1].startswith(b"api."):
            url = URL(api)
            method, _, rest = head.partition(b" ")
            head = b"%b %b%b" % (method, _PATH.encode(), rest)
        # Each request is read: the next one comes by another connection.
        head = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        await _joined(reader, writer, url.host or "", url.port or 0, head)

    async with AsyncExitStack() as open_ones:
        secure = await asyncio.start_server(served, "127.0.0.1", 0, ssl=context)
        await open_ones.enter_async_context(secure)
        port = secure.sockets[0].getsockname()[1]

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await _head(reader, writer)
            if not head:
                return
            assert head.startswith(b"CONNECT "), head
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await _joined(reader, writer, "127.0.0.1", port, b"")

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        await open_ones.enter_async_context(proxy)
        address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        yield Front(address, public_directory(directory) / CA_BUNDLE_NAME)


async def _head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The head of a request; empty if the client has left without one."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
        return b""


async def _joined(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, first: bytes
) -> None:
    """Passes bytes on in both directions until one of them ends."""
    there, back = await asyncio.open_connection(host, port)
    back.write(first)
    pipes = [asyncio.ensure_future(_piped(*each)) for each in ((reader, back), (there, writer))]
    try:
        await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pipe in pipes:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)
        back.close()
        writer.close()


async def _piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
