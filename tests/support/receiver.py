"""A server that gets POSTs and answers them well or badly."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
ERROR = b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops"
HANGS: Literal["hangs"] = "hangs"  # until the client leaves
ENDLESS: Literal["endless"] = "endless"  # a body without an end, after status 200
Reply = bytes | Literal["hangs", "endless"]


@dataclass
class Received:
    """A request; header names are in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Receiver:
    """`answer` decides about each request; by default all are well received."""

    url: str = ""
    answer: Callable[[Received], Reply] = lambda _: OK
    requests: list[Received] = field(default_factory=list)
    # Bytes of endless answers that clients took.
    sent: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in rest)}
        body = await reader.readexactly(int(headers["content-length"]))
        received = Received(line, headers, body)
        self.requests.append(received)
        reply = self.answer(received)
        if isinstance(reply, bytes):
            writer.write(reply)
            await writer.drain()
            return
        if reply == HANGS:
            await reader.read()
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()
            self.sent += 65536


@asynccontextmanager
async def receiving(path: str = "/paddock") -> AsyncIterator[Receiver]:
    """A receiver at a port of its own."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
