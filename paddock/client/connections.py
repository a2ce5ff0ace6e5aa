"""Connections without TLS for requests and answers that fit in memory.

They cost half the processor time of aiohttp's, which has proxies, redirects, TLS and streams.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any, cast

import aiohappyeyeballs
from aiohttp.abc import ResolveResult

from paddock.client.errors import UnreachableError
from paddock.client.http_messages import AnswerParser, BadAnswerError, Message
from paddock.client.resolver import Resolver
from paddock.client.sockets import (
    CONNECT_SECONDS,
    KEPT_SECONDS,
    MOST_KEPT,
    LostError,
    lasting_socket,
    readable,
    sends_again,
)


class Connections:
    """The connections of one event loop to one server, each with one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._loop = asyncio.get_running_loop()
        self._open: set[_Connection] = set()
        # The one that was used last is at the end, and is used next.
        self._kept: list[_Connection] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def exchange(self, method: str, request: bytes, seconds: float) -> Message:
        """The answer to a request.

        Raises: UnreachableError if nothing was sent; TimeoutError after `seconds`; ConnectionError;
        BadAnswerError.
        """
        deadline = self._loop.time() + seconds
        kept = self._take()
        if kept is not None:
            try:
                return await self._exchange(kept, request, deadline)
            except LostError as error:
                if not sends_again(method, error) or self._closed:
                    raise
        return await self._exchange(await self._connect(deadline), request, deadline)

    async def close(self) -> None:
        """Closes all of them, also those that wait for an answer."""
        self._closed = True
        self._kept.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()
        ending = [connection.end() for connection in self._open]
        if ending:
            await asyncio.wait(ending)

    async def _exchange(
        self, connection: "_Connection", request: bytes, deadline: float
    ) -> Message:
        answer = await connection.exchange(request, deadline)
        if connection.reusable and not self._closed and len(self._kept) < MOST_KEPT:
            connection.kept_at = self._loop.time()
            self._kept.append(connection)
            if self._sweeping is None:
                self._sweeping = self._loop.call_later(KEPT_SECONDS, self._sweep)
        else:
            connection.abort()
        return answer

    def _take(self) -> "_Connection | None":
        while self._kept:
            connection = self._kept.pop()
            if connection.fresh(self._loop.time() - KEPT_SECONDS):
                return connection
            connection.abort()
        return None

    def _sweep(self) -> None:
        """Closes those that nobody has used for long."""
        self._sweeping = None
        oldest = self._loop.time() - KEPT_SECONDS
        for connection in self._kept:
            if connection.kept_at <= oldest:
                connection.abort()
        self._kept = [each for each in self._kept if each.kept_at > oldest]
        if self._kept:
            due = self._kept[0].kept_at + KEPT_SECONDS
            self._sweeping = self._loop.call_at(due, self._sweep)

    def _lost(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._kept:
            self._kept.remove(connection)

    async def _connect(self, deadline: float) -> "_Connection":
        # The time-out of the request includes the resolution of names, that of the connection not.
        async with asyncio.timeout_at(deadline):
            try:
                addresses = await self._addresses()
                async with asyncio.timeout(CONNECT_SECONDS):
                    opened = await aiohappyeyeballs.start_connection(
                        addresses,
                        happy_eyeballs_delay=0.25,
                        interleave=1,
                        loop=self._loop,
                        socket_factory=lasting_socket,
                    )
            except OSError as error:
                where = f"{self._host}:{self._port}"
                reason = str(error) or "no connection in time"
                raise UnreachableError(f"no control plane answers at {where}: {reason}") from error
            _, connection = await self._loop.create_connection(
                lambda: _Connection(self._loop, self._lost), sock=opened
            )
        self._open.add(connection)
        if self._closed:
            connection.abort()
            raise LostError("this client is closed", begun=False)
        return connection

    async def _addresses(self) -> list[Any]:
        """In the form of `socket.getaddrinfo`. Raises: OSError."""
        try:
            version = ipaddress.ip_address(self._host).version
        except ValueError:
            found = await Resolver().resolve(self._host, self._port, socket.AF_UNSPEC)
            return [_address(each) for each in found]
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (self._host, self._port))]


def _address(found: ResolveResult) -> Any:
    place = (found["host"], found["port"])
    return found["family"], socket.SOCK_STREAM, found["proto"], "", place


class _Connection(asyncio.Protocol):
    """One connection. `lost` is called once, at its end."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, lost: Callable[["_Connection"], None]
    ) -> None:
        self._loop, self._lost = loop, lost
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Message] | None = None
        self._parser = AnswerParser()
        self._begun = False
        self._ended: asyncio.Future[None] = loop.create_future()
        # When it became idle, in the loop's time.
        self.kept_at = 0.0

    @property
    def reusable(self) -> bool:
        """Whether the last answer left it as a new connection is."""
        return (
            self._parser.lasting
            and self._transport is not None
            and not self._transport.is_closing()
            and not self._transport.get_write_buffer_size()
        )

    def fresh(self, oldest: float) -> bool:
        """Whether it may take another request."""
        transport = self._transport
        if transport is None or transport.is_closing() or self.kept_at <= oldest:
            return False
        # A program that kept the loop busy has not read yet that the server closed it.
        return not readable(transport.get_extra_info("socket").fileno())

    async def exchange(self, request: bytes, deadline: float) -> Message:
        """The answer. Raises: TimeoutError, LostError, BadAnswerError; these end the connection."""
        if self._transport is None:
            raise LostError("the server has closed it", begun=False)
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._answer = answer
        self._parser, self._begun = AnswerParser(), False
        expiry = self._loop.call_at(deadline, self._fail, TimeoutError())
        try:
            self._transport.write(request)
            return await answer
        except BaseException:
            self.abort()
            raise
        finally:
            expiry.cancel()
            self._answer = None

    def abort(self) -> None:
        """Closes it; what waits to be sent is not sent."""
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> asyncio.Future[None]:
        """Closes it; the future is done when it is closed."""
        self.abort()
        return self._ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """From asyncio."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """From asyncio."""
        if self._answer is None or self._answer.done():
            # Nothing was asked.
            self.abort()
            return
        self._begun = True
        try:
            message = self._parser.feed(data)
        except BadAnswerError as error:
            self._fail(error)
            return
        if message is not None:
            self._answer.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """From asyncio."""
        self._transport = None
        self._lost(self)
        if not self._ended.done():
            self._ended.set_result(None)
        if self._answer is None or self._answer.done():
            return
        message = self._parser.end() if exc is None else None
        if message is not None:
            self._answer.set_result(message)
        else:
            reason = "the server closed it" if exc is None else str(exc) or type(exc).__name__
            self._fail(LostError(reason, begun=self._begun))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
