"""A web server to download from, in a process of its own: `python -m tests.bench.upstream DIR`.

`DIR` has `cert.pem` and `key.pem`. It prints its two ports, for HTTP and for HTTPS. `GET /N`
answers with N bytes, and ends the connection.
"""

import asyncio
import ssl
import sys
from contextlib import suppress
from pathlib import Path

_BLOCK = bytes(1024 * 1024)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.split(b" ")[1].rpartition(b"/")[2])
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % left)
        while left:
            block = _BLOCK[:left]
            writer.write(block)
            await writer.drain()
            left -= len(block)
        writer.close()
        await writer.wait_closed()


async def _serve(directory: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    servers = [
        await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=context) for context in (None, tls)
    ]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
