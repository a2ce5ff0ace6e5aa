"""A viewer of a terminal over its WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from tests.support.box import PATIENCE


class LiveViewer:
    """What one viewer is shown, and what it types."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket
        self.output = b""
        # The text frames, and how the socket was closed.
        self.told: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None

    @property
    def terminal(self) -> dict[str, Any]:
        """The first frame."""
        found: dict[str, Any] = self.told[0]["terminal"]
        return found

    async def next(self) -> None:
        """Takes one frame."""
        async with asyncio.timeout(PATIENCE):
            message = await self.socket.receive()
        if message.type is WSMsgType.BINARY:
            self.output += message.data
        elif message.type is WSMsgType.TEXT:
            self.told.append(json.loads(message.data))
        else:
            self.closed = (self.socket.close_code or 0, str(message.extra or ""))

    async def until(self, text: str, *, after: str = "") -> str:
        """Waits until it was shown that, after the first `after`, and returns all output so far."""
        while not self._shows(text.encode(), after.encode()):
            await self.next()
            assert self.closed is None, (self.closed, self.output, self.told)
        return self.output.decode(errors="replace")

    def _shows(self, text: bytes, after: bytes) -> bool:
        start = self.output.find(after)
        return start >= 0 and text in self.output[start:]

    async def end(self) -> dict[str, Any]:
        """Waits for the end of the socket; returns the last text frame."""
        while self.closed is None:
            await self.next()
        return self.told[-1]

    async def type(self, text: str) -> None:
        """Types that."""
        await self.socket.send_bytes(text.encode())

    async def resize(self, columns: int, rows: int) -> None:
        """Asks for that size."""
        await self.socket.send_json({"resize": {"cols": columns, "rows": rows}})


@asynccontextmanager
async def live(
    client: ClientSession, url: str, key: str | None = None, **options: Any
) -> AsyncIterator[LiveViewer]:
    """A viewer, after its first frame."""
    headers = dict(options.pop("headers", {}))
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    async with client.ws_connect(url, headers=headers, **options) as socket:
        viewer = LiveViewer(socket)
        await viewer.next()
        yield viewer
