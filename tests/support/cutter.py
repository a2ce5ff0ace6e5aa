"""A TCP proxy in this process whose connections a test can cut, stall and refuse."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Cutter:
    """Forwards to a port. `url` is its address; `accepted` counts its connections."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.accepted = 0
        self._target = port
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def listen(self) -> None:
        """Listens, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Resets every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def cut_off(self) -> None:
        """Resets every connection, and returns when the other ends can notice."""
        cut = list(self._writers)
        self.cut()
        for writer in cut:
            with suppress(ConnectionError):
                await writer.wait_closed()

    def stall(self) -> None:
        """Silently stops forwarding."""
        self._flowing.clear()

    def flow(self) -> None:
        """Forwards what was held back."""
        self._flowing.set()

    async def refuse(self) -> None:
        """Resets every connection and accepts no new ones."""
        if self._server is not None:
            self._server.close()
        self.cut()

    async def close(self) -> None:
        self.flow()
        await self.refuse()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        self._writers.add(writer)
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(forth)
            try:
                await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))
            finally:
                await self._end(forth)
        finally:
            await self._end(writer)
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        # A half-closed connection would hold the other half open.
        writer.close()

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def cutting(port: int) -> AsyncIterator[Cutter]:
    """A listening proxy."""
    cutter = Cutter(port)
    await cutter.listen()
    try:
        yield cutter
    finally:
        await cutter.close()
