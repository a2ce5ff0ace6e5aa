"""A connection as the proxy uses it: bounded buffers in both directions."""

import asyncio
import select
import socket
from contextlib import suppress

from orchestrator.settings.hosts import Address

# How much of a connection is kept while its other side is slow, per direction.
BUFFER_BYTES = 64 * 1024
READ_BYTES = 32 * 1024
HEAD_END = b"\r\n\r\n"


class Stream:
    """A byte stream; its owner ends it with `abort`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        # Bytes that were read, but not used yet.
        self._ahead = b""
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises: OSError."""
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        return await self._receive()

    async def peek(self) -> bytes:
        """The next bytes, which the next read returns again. Raises: OSError."""
        if not self._ahead:
            self._ahead = await self._receive()
        return self._ahead

    async def read_head(self, most: int) -> bytes:
        """Bytes up to an empty line, at most so many.

        Raises: asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError.
        """
        data, end = b"", -1
        while end < 0 and len(data) <= most:
            more = await self.read()
            if not more:
                raise asyncio.IncompleteReadError(data, None)
            searched = max(0, len(data) - len(HEAD_END) + 1)
            data += more
            end = data.find(HEAD_END, searched)
        if end < 0 or end + len(HEAD_END) > most:
            raise asyncio.LimitOverrunError("the head is too long", len(data))
        end += len(HEAD_END)
        self._ahead = data[end:]
        return data[:end]

    async def _receive(self) -> bytes:
        """The next bytes of the connection. Raises: OSError."""
        return await self.reader.read(READ_BYTES)

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. Raises: OSError."""
        self.writer.write(data)
        await self.writer.drain()

    def finish(self) -> None:
        """Ends the direction in which it is written."""
        with suppress(OSError, RuntimeError):  # it is closed already
            self.writer.write_eof()

    async def flush(self) -> None:
        """Returns when everything is written. Raises: OSError."""
        self.writer.transport.set_write_buffer_limits(high=0)
        await self.writer.drain()

    async def gone(self) -> None:
        """Returns once the other side has closed both directions, which `read` does not report.

        For UNIX connections: their kernel reports it (EPOLLHUP), asyncio does not.
        """
        loop = asyncio.get_running_loop()
        reported = asyncio.Event()
        with select.epoll() as watch:
            # Nothing is asked for: the end of both directions is always reported.
            watch.register(self.writer.get_extra_info("socket").fileno(), 0)
            loop.add_reader(watch.fileno(), reported.set)
            try:
                await reported.wait()
            finally:
                loop.remove_reader(watch.fileno())

    def abort(self) -> None:
        """Ends it at once."""
        self.writer.transport.abort()


async def accepted(connection: socket.socket, head_bytes: int) -> Stream:
    """The stream of an accepted connection, whose head has at most that many bytes."""
    return Stream(*await asyncio.open_unix_connection(sock=connection, limit=head_bytes))


async def connect(address: Address, port: int) -> Stream:
    """Raises: OSError."""
    return Stream(*await asyncio.open_connection(str(address), port, limit=BUFFER_BYTES // 2))
