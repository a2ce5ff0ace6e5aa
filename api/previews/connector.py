"""An HTTP client's connection through a tunnel into a sandbox."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import BaseConnector, ClientPayloadError, ClientRequest, ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace


class TunnelConnector(BaseConnector):
    """Makes each connection by `connect`, and reads at most `head_bytes` before an answer begins.

    `begun` says that the answer has begun: what follows is a body of any size.
    """

    def __init__(self, connect: Callable[[], Awaitable[socket.socket]], head_bytes: int) -> None:
        super().__init__(force_close=True)
        self._connect_tunnel = connect
        self._head_bytes = head_bytes
        self._handlers: list[_HeadLimit] = []

    def begun(self) -> None:
        """No head is being read any more."""
        for handler in self._handlers:
            handler.lift()

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        """Raises: the errors of `connect`."""
        tunnel = await self._connect_tunnel()
        loop = asyncio.get_running_loop()
        factory = partial(_HeadLimit, loop, self._head_bytes)
        try:
            _, handler = await loop.create_unix_connection(factory, sock=tunnel)
        except BaseException:
            tunnel.close()
            raise
        self._handlers.append(handler)
        return handler


class _HeadLimit(ResponseHandler):
    """Ends the connection if too much arrives before `lift`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        super().__init__(loop)
        self._left: int | None = most

    def lift(self) -> None:
        """What arrives is not limited any more."""
        self._left = None

    def data_received(self, data: bytes) -> None:
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                self.set_exception(ClientPayloadError("the answer's head is too long"))
                if self.transport is not None:
                    self.transport.abort()
                return
        super().data_received(data)

    def set_parser(self, *arguments: Any, **others: Any) -> None:
        # A WebSocket has begun.
        self.lift()
        super().set_parser(*arguments, **others)
