"""A TCP proxy that cuts, resets or stalls connections at a chosen message of the client."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

_CHUNK = 65_536


class Fault(StrEnum):
    """What happens at the chosen message, and to all later ones until `heal`."""

    RESET = "reset"  # it never arrives, and the connection is reset
    LOST = "lost"  # it arrives, and the answer does not: the connection ends
    STALL = "stall"  # it arrives, and nothing comes back; the connection stays


@dataclass
class FaultyProxy:
    """Forwards to a server. `dsn` leads through it."""

    dsn: str
    # Messages of clients since `arm`, and the one at which the fault begins.
    messages: int = 0
    fault: Fault | None = None
    at: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def arm(self, fault: Fault, at: int) -> None:
        """From the client's message with that number on, counted from now, there is the fault."""
        self.messages, self.fault, self.at = 0, fault, at

    def heal(self) -> None:
        """New connections work. Those with a fault are reset."""
        self.fault = None
        for writer in list(self._writers):
            _reset(writer)

    @property
    def broken(self) -> bool:
        """Whether the fault has begun."""
        return self.fault is not None and self.messages >= self.at

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[str, int]
    ) -> None:
        """One connection, to its end in both directions."""
        up, down = await asyncio.open_connection(*target)
        self._writers |= {writer, down}
        try:
            back = asyncio.create_task(self._back(up, writer))
            with suppress(ConnectionError):
                await self._forth(reader, down, writer)
            back.cancel()
            await asyncio.wait([back])
        finally:
            for each in (writer, down):
                self._writers.discard(each)
                each.close()

    async def _forth(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        while data := await reader.read(_CHUNK):
            self.messages += 1
            if self.broken and self.fault is Fault.RESET:
                _reset(client)
                return
            server.write(data)
            await server.drain()
            if self.broken and self.fault is Fault.LOST:
                _reset(client)
                # The server has the message, and time to act on it.
                await asyncio.sleep(0)
                return

    async def _back(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await server.read(_CHUNK):
                if not self.broken:
                    client.write(data)
                    await client.drain()
            client.close()


@asynccontextmanager
async def proxying(dsn: str) -> AsyncIterator[FaultyProxy]:
    """A proxy before the server of that URL."""
    parts = urlsplit(dsn)
    target = (parts.hostname or "", parts.port or 0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await proxy.serve(reader, writer, target)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    login = parts.netloc.rpartition("@")[0]
    proxy = FaultyProxy(urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}")))
    try:
        yield proxy
    finally:
        server.close()
        proxy.heal()
        await server.wait_closed()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
