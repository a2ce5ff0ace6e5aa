"""Serves a WebSocket on which a client asks for one run after another, and gets its events."""

import asyncio
import time
from contextlib import aclosing
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from api.http.frames import Frames
from api.http.sockets import RUN, begin, close, cut_off, send, socket_for
from api.shape.answers import Event, Exchange
from orchestrator.ground.errors import BusyError, PaddockError, RateLimitedError
from orchestrator.ground.limits import TokenBucket
from orchestrator.ground.serving import stream
from orchestrator.ground.task_scope import TaskScope

# Of one message; JSON may need six bytes for a character.
MOST_MESSAGE_BYTES = 640 * 1024
# Without a run and without a message.
IDLE_SECONDS = 600.0
# Frames over the caller's rate that are refused; after so many seconds one more is.
MOST_REFUSALS = 5
REFUSAL_SECONDS = 10.0


class RunSocket:
    """One open WebSocket."""

    def __init__(
        self, request: web.Request, socket: web.WebSocketResponse, answer: Exchange[Any]
    ) -> None:
        self._request = request
        self._socket = socket
        self._frames = Frames(request, socket)
        self._refusals = TokenBucket(MOST_REFUSALS, time.monotonic())
        self._answer = answer
        self._running: asyncio.Task[None] | None = None
        self._idle = asyncio.timeout(IDLE_SECONDS)
        self._open = True
        self._scope = TaskScope("a WebSocket for runs")

    async def serve(self) -> None:
        """Returns when it is closed; a run that the client has asked for goes on."""
        try:
            async with self._idle:
                await self._take()
        except TimeoutError:
            await close(self._socket, WSCloseCode.OK, f"nothing was sent for {IDLE_SECONDS:g} s")
        except ConnectionError:
            return
        except asyncio.CancelledError:
            # The control plane stops, or the credential is not valid any more.
            await close(self._socket, WSCloseCode.GOING_AWAY, "the connection is ended")
            raise
        finally:
            self._open = False
            await self._scope.close()

    async def _take(self) -> None:
        while True:
            message = await self._frames.next()
            if message.type is WSMsgType.TEXT:
                await self._ask(message.data)
            elif message.type is WSMsgType.BINARY:
                reason = "only text frames are understood"
                await cut_off(self._request, self._socket, WSCloseCode.UNSUPPORTED_DATA, reason)
                return
            else:
                return

    async def _ask(self, text: str) -> None:
        """Begins what a frame asks for, if the frame is valid and nothing runs.

        Raises: ConnectionError if the client is cut off.
        """
        try:
            events = self._answer.asked(text)
            if self._running is not None:
                raise BusyError("a run of this WebSocket goes on: wait for its end")
        except PaddockError as error:
            self._wait_again()
            if isinstance(error, RateLimitedError):
                await self._slow_down(error)
            else:
                await self._tell(self._answer.refusal(error))
            return
        self._idle.reschedule(None)
        self._running = self._scope.spawn(self._show(events))

    async def _slow_down(self, error: RateLimitedError) -> None:
        """Refuses a frame over the rate, and takes the next one when there is room for it.

        A client that sends on regardless is cut off, because it would only be refused. Raises:
        ConnectionError.
        """
        if self._refusals.take(time.monotonic(), 1 / REFUSAL_SECONDS, MOST_REFUSALS):
            await cut_off(self._request, self._socket, WSCloseCode.TRY_AGAIN_LATER, error.detail)
            raise ConnectionResetError(error.detail)
        await self._tell(self._answer.refusal(error))
        await asyncio.sleep(error.fields["retry_after"])

    async def _show(self, events: Any) -> None:
        """Sends the events; a failure before the first one refuses the frame."""
        shown = False
        try:
            async with aclosing(events):
                async for event in events:
                    if event is not None:
                        await self._tell(event)
            shown = True
        except PaddockError as error:
            await self._tell(self._answer.refusal(error))
            shown = True
        except ConnectionError:
            return  # it is closed
        finally:
            if not shown:
                # The client must not think that the run has ended.
                stream.abort(self._request)
            self._running = None
            self._wait_again()

    async def _tell(self, event: Event) -> None:
        await send(self._request, self._socket, self._answer.frame(event).encode().decode())

    def _wait_again(self) -> None:
        """Begins to count the time without a message, unless something runs."""
        if self._open and self._running is None:
            self._idle.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)


async def serve(request: web.Request, answer: Exchange[Any]) -> web.StreamResponse:
    """Returns when the WebSocket is closed."""
    socket = socket_for(RUN, MOST_MESSAGE_BYTES)
    with answer.held:
        await begin(request, socket)
        await RunSocket(request, socket, answer).serve()
    return socket
