"""Passes the bytes of one connection on, in both directions, within its session's budget."""

import asyncio
from collections.abc import Awaitable, Callable

from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.sandbox.egress.client_presence import while_present
from orchestrator.sandbox.egress.meter import Meter
from orchestrator.sandbox.egress.request_body import BodyError, body_of
from orchestrator.sandbox.egress.stream import Stream


class Relay:
    """Between a client and an upstream; their owners end them."""

    def __init__(
        self,
        client: Stream,
        upstream: Stream,
        meter: Meter,
        idle_seconds: float,
        slot: Callable[[], Awaitable[None]],
    ) -> None:
        """`slot` returns when this connection may pass its next bytes on."""
        self._client = client
        self._upstream = upstream
        self._meter = meter
        self._idle_seconds = idle_seconds
        self._slot = slot

    async def run(self, head: RequestHead, first: bytes) -> None:
        """Sends `first` and what follows it, until the upstream ends.

        Raises: OSError, SpentError, BodyError, TimeoutError, ClientGoneError.
        """
        async with asyncio.timeout(self._idle_seconds) as idle:
            await self._send(first, idle)

            async def passed_on() -> None:
                await asyncio.wait([sending])
                await self._upstream.flush()

            async with while_present(self._client, passed_on) as start:
                sending = start(self._tunnel(idle) if head.connect else self._body(head, idle))
                await self._receive(idle)
                sending.cancel()

    async def _tunnel(self, idle: asyncio.Timeout) -> None:
        while data := await self._client.read():
            await self._send(data, idle)
        self._upstream.finish()

    async def _body(self, head: RequestHead, idle: asyncio.Timeout) -> None:
        """Passes the request's body on, and nothing after it."""
        body = body_of(head.length)
        while not body.complete:
            data = await self._client.read()
            if not data:
                raise BodyError("the client ended within the request's body")
            await self._send(data[: body.take(data)], idle)

    async def _send(self, data: bytes, idle: asyncio.Timeout) -> None:
        await self._slot()
        await self._upstream.write(data[: self._meter.send(len(data))])
        self._meter.check()
        self._renew(idle)

    async def _receive(self, idle: asyncio.Timeout) -> None:
        while data := await self._upstream.read():
            await self._slot()
            await self._client.write(data[: self._meter.receive(len(data))])
            self._meter.check()
            self._renew(idle)

    def _renew(self, idle: asyncio.Timeout) -> None:
        idle.reschedule(asyncio.get_running_loop().time() + self._idle_seconds)
