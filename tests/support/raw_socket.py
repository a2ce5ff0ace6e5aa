"""A WebSocket's client that sends whatever bytes it likes, at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from yarl import URL

from tests.support.box import PATIENCE

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def masked(opcode: int, data: bytes = b"") -> bytes:
    """A client's frame of less than 126 bytes; its mask changes nothing."""
    return bytes((0x80 | opcode, 0x80 | len(data))) + bytes(4) + data


class RawSocket:
    """One connection after its handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        """Sends bytes as they are, without waiting."""
        self._writer.write(data)

    async def next(self) -> tuple[int, bytes]:
        """The next frame's opcode and data."""
        async with asyncio.timeout(PATIENCE):
            first, length = await self._reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self._reader.readexactly(2), "big")
            return first & 0xF, await self._reader.readexactly(length)

    async def until_closed(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The code with which it is closed, and the frames before."""
        frames = []
        while (frame := await self.next())[0] != CLOSE:
            frames.append(frame)
        return int.from_bytes(frame[1][:2], "big"), frames


@asynccontextmanager
async def raw_socket(url: URL, key: str) -> AsyncIterator[RawSocket]:
    """A WebSocket at that address, by HTTP's own bytes."""
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(
            f"GET {url.path_qs} HTTP/1.1\r\nHost: {url.authority}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {'A' * 22}==\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        yield RawSocket(reader, writer)
    finally:
        writer.transport.abort()
