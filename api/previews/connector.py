"""An HTTP client's connection through a tunnel into a sandbox."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import BaseConnector, ClientRequest, ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace

from orchestrator.ground.http_connector import BoundedHandler


class TunnelConnector(BaseConnector):
    """Makes each connection by `connect`, with at most `head_bytes` before an answer begins."""

    def __init__(self, connect: Callable[[], Awaitable[socket.socket]], head_bytes: int) -> None:
        super().__init__(force_close=True)
        self._connect_tunnel = connect
        self._head_bytes = head_bytes

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        """Raises: the errors of `connect`."""
        tunnel = await self._connect_tunnel()
        loop = asyncio.get_running_loop()
        factory = partial(BoundedHandler, loop, self._head_bytes)
        try:
            _, handler = await loop.create_unix_connection(factory, sock=tunnel)
        except BaseException:
            tunnel.close()
            raise
        return handler
