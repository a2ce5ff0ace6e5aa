"""A WebSocket on which one message after another is sent, and their runs are followed."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, Unpack

from paddock.client.errors import NotPaddockError, event_error
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.run_events import RunEvent, run_event
from paddock.client.run_terms import RunTerms, run_members
from paddock.client.websocket import Socket

# A run's end has all its operations.
_MOST_BYTES = 64 * 1024 * 1024
_LAST = ("end", "error", "refused")


class RunSocket(Face[F]):
    """An open WebSocket for runs; `close` leaves it, and a run that goes on continues.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    def __init__(self, link: Link, held: AsyncExitStack, socket: Socket, session_id: str) -> None:
        super().__init__(link)
        self._held = held
        self._socket = socket
        self._session_id = session_id
        self._following = False

    @stream
    async def run(self, text: str, **terms: Unpack[RunTerms]) -> AsyncGenerator[RunEvent, None]:
        """Sends a message; yields what happens, and the `Run` at its end, like `send_stream`.

        One run goes on at a time. Events that are left of an earlier run are skipped.
        """
        while self._following:
            await self._next()
        frame = {"type": "run", "session_id": self._session_id, "input": text, **run_members(terms)}
        await self._socket.send(frame)
        self._following = True
        while self._following:
            name, data = await self._next()
            if name in ("error", "refused"):
                raise event_error(data)
            event = run_event(name, data)
            if event is not None:
                yield event

    @method
    async def close(self) -> None:
        """Leaves it."""
        await self._held.aclose()

    async def _next(self) -> tuple[str, dict[str, Any]]:
        told = await self._socket.receive()
        if isinstance(told, bytes):
            raise NotPaddockError("the WebSocket is not one of Paddock's for runs")
        name, data = told.get("event"), told.get("data")
        if not isinstance(name, str) or not isinstance(data, dict):
            raise NotPaddockError("the WebSocket is not one of Paddock's for runs")
        self._following = name not in _LAST
        return name, data


async def opened(link: Link, path: str, session_id: str) -> "RunSocket[Any]":
    """The client's end of a new WebSocket."""
    async with AsyncExitStack() as held:
        connecting = link.transport.websocket(path, {}, "paddock.run", _MOST_BYTES)
        socket = await held.enter_async_context(connecting)
        return RunSocket(link, held.pop_all(), socket, session_id)
