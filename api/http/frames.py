"""Takes the frames of a WebSocket's client one by one, at a pace that leaves the loop to others."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from api.http.sockets import cut_off
from orchestrator.ground.limits import TokenBucket
from orchestrator.ground.serving import stream


class FrameRates(NamedTuple):
    """Frames per second of one WebSocket, and how many may come at once.

    Data frames above it are read later. A client has no reason to send more control frames: it is
    cut off.
    """

    data: float = 250.0
    data_burst: float = 500.0
    control: float = 10.0
    control_burst: float = 100.0


FRAME_RATES = FrameRates()
_CONTROL = (WSMsgType.PING, WSMsgType.PONG)
_TOO_MANY = "too many pings and pongs"


class Frames:
    """What the client of one WebSocket sends."""

    def __init__(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        rates: FrameRates = FRAME_RATES,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._request, self._socket = request, socket
        self._rates, self._clock, self._sleep = rates, clock, sleep
        self._data = TokenBucket(rates.data_burst, clock())
        self._control = TokenBucket(rates.control_burst, clock())

    async def next(self) -> WSMessage:
        """The next frame of text or bytes, or the end; pings are answered meanwhile.

        Raises: ConnectionError if the client is cut off, has gone, or does not read.
        """
        while True:
            message: WSMessage = await self._socket.receive()
            # Frames that have arrived are received without waiting, so others are served here.
            await asyncio.sleep(0)
            if message.type not in _CONTROL:
                await self._pace()
                return message
            await self._answer(message)

    async def _pace(self) -> None:
        while wait := self._data.take(self._clock(), self._rates.data, self._rates.data_burst):
            await self._sleep(wait)

    async def _answer(self, message: WSMessage) -> None:
        rates = self._rates
        if self._control.take(self._clock(), rates.control, rates.control_burst):
            await cut_off(self._request, self._socket, WSCloseCode.POLICY_VIOLATION, _TOO_MANY)
            raise ConnectionResetError(_TOO_MANY)
        if message.type is WSMsgType.PING:
            await stream.within_time(self._request, self._socket.pong(message.data))
