"""A connection as the proxy uses it: bounded buffers in both directions."""

import asyncio
import socket
from contextlib import suppress

from orchestrator.egress.hosts import Address

# What is kept of a connection while its other side is slow, per direction.
BUFFER_BYTES = 64 * 1024
_READ_BYTES = 32 * 1024


class Stream:
    """A byte stream; its owner ends it with `abort`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises: OSError."""
        return await self._reader.read(_READ_BYTES)

    async def read_head(self) -> bytes:
        """Bytes up to an empty line.

        Raises: asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError.
        """
        return await self._reader.readuntil(b"\r\n\r\n")

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. Raises: OSError."""
        self._writer.write(data)
        await self._writer.drain()

    def finish(self) -> None:
        """Nothing more will be written."""
        with suppress(OSError, RuntimeError):  # it is closed already
            self._writer.write_eof()

    async def flush(self) -> None:
        """Returns when everything is written. Raises: OSError."""
        self._writer.transport.set_write_buffer_limits(high=0)
        await self._writer.drain()

    def abort(self) -> None:
        """Ends it at once."""
        self._writer.transport.abort()


async def accepted(connection: socket.socket, head_bytes: int) -> Stream:
    """The stream of an accepted connection, whose head has at most that many bytes."""
    return Stream(*await asyncio.open_unix_connection(sock=connection, limit=head_bytes))


async def connect(address: Address, port: int) -> Stream:
    """Raises: OSError."""
    return Stream(*await asyncio.open_connection(str(address), port, limit=BUFFER_BYTES // 2))
