"""Connections to a node: kept, and found dead when the way to it is cut."""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

from aiohttp import ClientConnectionError, ClientError, hdrs

from gateway.call import MOST_HEAD_BYTES, NodeAnswer, NodeCall, NodeRequest
from gateway.reasons import no_connection
from orchestrator.ground.http_connector import BoundedHandler
from orchestrator.ground.task_scope import TaskScope

CONNECT_SECONDS = 5.0
# Until a WebSocket's last bytes have reached the node.
_SHUTDOWN_SECONDS = 5.0
# Shorter than a node's own, 75 s, so that no request meets a connection that closes.
_KEEP_SECONDS = 30.0
# A connection without an answer to its probes, or to what was sent, ends within 15 s, which is also
# when a node's lease does.
_PROBES = (
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
)
# They are sent again if a connection that was kept ends before the answer.
_REPEATED = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})


class UnreachableError(ClientError):
    """There is no connection, so nothing was sent; the text says why."""


class Upstream:
    """Requests to one application of a node.

    The connections have no limit of their own: what clients may have open is bounded where they are
    counted.
    """

    def __init__(self, name: str, url: str, context: ssl.SSLContext | None) -> None:
        """`name` is the one that the node's certificate must have.

        `url` is an origin. `context`: None if it begins with http, which only tests have.
        """
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 443)
        self._context = context
        self._name = None if context is None else name
        # Those without a request, and since when; the newest is last.
        self._kept: deque[tuple[BoundedHandler, float]] = deque()
        self._forgetting: asyncio.TimerHandle | None = None
        self._sending = TaskScope("sending a body to a node")
        self._closed = False

    def __len__(self) -> int:
        """How many connections are kept."""
        return len(self._kept)

    @asynccontextmanager
    async def asked(self, request: NodeRequest) -> AsyncIterator[NodeAnswer]:
        """The node's answer, which is read within the block. What is left then is cut off.

        Raises: UnreachableError if nothing was sent; ClientError if the answer breaks, or is none.
        """
        call, answer = await self._begun(request)
        try:
            yield answer
        finally:
            connection = call.end()
            if connection is not None:
                self._keep(connection)

    async def close(self) -> None:
        """Closes the connections that are kept; those in use are cut by who uses them."""
        self._closed = True
        self._forget(float("inf"))
        await self._sending.close()

    async def _begun(self, request: NodeRequest) -> tuple[NodeCall, NodeAnswer]:
        kept = self._take()
        if kept is not None:
            call = NodeCall(kept, self._sending)
            try:
                return call, await call.begin(request)
            except ClientConnectionError:
                if request.method not in _REPEATED or request.body is not None:
                    raise
        call = NodeCall(await self._connected(), self._sending)
        return call, await call.begin(request)

    async def _connected(self) -> BoundedHandler:
        """A new connection. Raises: UnreachableError."""
        loop = asyncio.get_running_loop()
        shutdown = None if self._context is None else _SHUTDOWN_SECONDS
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                transport, connection = await loop.create_connection(
                    partial(BoundedHandler, loop, MOST_HEAD_BYTES),
                    *self._address,
                    ssl=self._context,
                    server_hostname=self._name,
                    ssl_shutdown_timeout=shutdown,
                )
        except OSError as error:
            raise UnreachableError(no_connection(error)) from None
        plug = transport.get_extra_info("socket")
        for option in _PROBES:
            plug.setsockopt(*option)
        return connection

    def _take(self) -> BoundedHandler | None:
        """A connection that waits for a request."""
        while self._kept:
            connection, _ = self._kept.pop()
            # What nobody has asked for makes it useless, too.
            if connection.is_connected() and not connection.should_close:
                return connection
            _cut(connection)
        return None

    def _keep(self, connection: BoundedHandler) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            _cut(connection)
            return
        self._kept.append((connection, loop.time()))
        if self._forgetting is None:
            self._forgetting = loop.call_later(_KEEP_SECONDS, self._forget_old)

    def _forget_old(self) -> None:
        loop = asyncio.get_running_loop()
        self._forget(loop.time() - _KEEP_SECONDS)
        if self._kept:
            _, oldest = self._kept[0]
            self._forgetting = loop.call_at(oldest + _KEEP_SECONDS, self._forget_old)

    def _forget(self, until: float) -> None:
        """Closes those that are kept since then or longer."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None
        while self._kept and self._kept[0][1] <= until:
            connection, _ = self._kept.popleft()
            _cut(connection)


def _cut(connection: BoundedHandler) -> None:
    if connection.transport is not None:
        connection.transport.abort()
