"""A TCP proxy that ends a connection after so many bytes of what its target sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class ByteCutter:
    """Forwards to a port. `passed` counts the bytes that the target sent on the last connection."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.passed = 0
        # After how many bytes it ends one, whether by a reset, and only one; None: never.
        self.after: int | None = None
        self.resets = True
        self.once = False
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        back, forth = await asyncio.open_connection("127.0.0.1", self._target)
        asked = asyncio.ensure_future(_pump(reader, forth))
        self._tasks.add(asked)
        asked.add_done_callback(self._tasks.discard)
        self.passed = 0
        try:
            with suppress(ConnectionError):
                await self._answer(back, writer)
        finally:
            asked.cancel()
            for each in (writer, forth):
                each.transport.abort() if self.resets else each.close()

    async def _answer(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await back.read(65536):
            left = len(data) if self.after is None else max(0, self.after - self.passed)
            writer.write(data[:left])
            await writer.drain()
            self.passed += len(data)
            if left < len(data):
                if self.once:
                    self.after = None
                return


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def cutting_bytes(port: int) -> AsyncIterator[ByteCutter]:
    """A listening proxy."""
    cutter = ByteCutter(port)
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    cutter.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield cutter
    finally:
        server.close()
        await server.wait_closed()
