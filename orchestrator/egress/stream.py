"""A connection as the proxy uses it: bounded buffers in both directions."""

import asyncio
import socket
from contextlib import suppress

from orchestrator.egress.hosts import Address

# What is kept of a connection while its other side is slow, per direction.
BUFFER_BYTES = 64 * 1024
READ_BYTES = 32 * 1024
HEAD_END = b"\r\n\r\n"


class Stream:
    """A byte stream; its owner ends it with `abort`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises: OSError."""
        return await self.reader.read(READ_BYTES)

    async def read_head(self, most: int) -> bytes:
        """Bytes up to an empty line, at most so many.

        Raises: asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError.
        """
        data = await self.reader.readuntil(HEAD_END)
        if len(data) > most:
            raise asyncio.LimitOverrunError("the head is too long", len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. Raises: OSError."""
        self.writer.write(data)
        await self.writer.drain()

    def finish(self) -> None:
        """Nothing more will be written."""
        with suppress(OSError, RuntimeError):  # it is closed already
            self.writer.write_eof()

    async def flush(self) -> None:
        """Returns when everything is written. Raises: OSError."""
        self.writer.transport.set_write_buffer_limits(high=0)
        await self.writer.drain()

    def abort(self) -> None:
        """Ends it at once."""
        self.writer.transport.abort()


async def accepted(connection: socket.socket, head_bytes: int) -> Stream:
    """The stream of an accepted connection, whose head has at most that many bytes."""
    return Stream(*await asyncio.open_unix_connection(sock=connection, limit=head_bytes))


async def connect(address: Address, port: int) -> Stream:
    """Raises: OSError."""
    return Stream(*await asyncio.open_connection(str(address), port, limit=BUFFER_BYTES // 2))
