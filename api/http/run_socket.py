"""Speaks a WebSocket on which a client asks for one thing after another, and sees its events."""

import asyncio
from contextlib import aclosing
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from api.answers import Event, Exchange
from api.http import stream
from api.http.sockets import close, send, socket_for
from api.http.ticket import RUN
from orchestrator.errors import BusyError, PaddockError
from orchestrator.task_scope import TaskScope

# Of one message; JSON may need six bytes for a character.
MOST_MESSAGE_BYTES = 640 * 1024
# Without anything that runs and without a message.
IDLE_SECONDS = 600.0


class RunSocket:
    """One open WebSocket."""

    def __init__(
        self, request: web.Request, socket: web.WebSocketResponse, answer: Exchange[Any]
    ) -> None:
        self._request = request
        self._socket = socket
        self._answer = answer
        self._running: asyncio.Task[None] | None = None
        self._idle = asyncio.timeout(IDLE_SECONDS)
        self._open = True
        self._scope = TaskScope("a WebSocket for runs")

    async def serve(self) -> None:
        """Returns when it is closed; what the client has asked for goes on without it."""
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
            message = await self._socket.receive()
            if message.type is WSMsgType.TEXT:
                await self._ask(message.data)
            elif message.type is WSMsgType.BINARY:
                reason = "only text frames are understood"
                await close(self._socket, WSCloseCode.UNSUPPORTED_DATA, reason)
                return
            else:
                return

    async def _ask(self, text: str) -> None:
        """Begins what a frame asks for, if it is understood and nothing runs."""
        try:
            events = self._answer.asked(text)
            if self._running is not None:
                raise BusyError("a run of this WebSocket goes on: wait for its end")
        except PaddockError as error:
            self._wait_again()
            await self._tell(self._answer.refusal(error))
            return
        self._idle.reschedule(None)
        self._running = self._scope.spawn(self._show(events))

    async def _show(self, events: Any) -> None:
        """Sends the events; what fails before the first one refuses the frame."""
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
                # The client must not take it for the end.
                stream.abort(self._request)
            self._running = None
            self._wait_again()

    async def _tell(self, event: Event) -> None:
        await send(self._request, self._socket, self._answer.told(event).encode().decode())

    def _wait_again(self) -> None:
        """Begins to count the time without a message, unless something runs."""
        if self._open and self._running is None:
            self._idle.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)


async def serve(request: web.Request, answer: Exchange[Any]) -> web.StreamResponse:
    """Returns when the WebSocket is closed."""
    socket = socket_for(RUN, MOST_MESSAGE_BYTES)
    with answer.held:
        await stream.begin(request, socket)
        await RunSocket(request, socket, answer).serve()
    return socket
