"""A WebSocket on which one message after another is sent, and their runs are followed."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from paddock.client.errors import NotPaddockError, api_error
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.requests import given
from paddock.client.run_events import RunEvent, run_event
from paddock.client.websocket import Socket
from paddock.contract.runs import RUN_EVENTS

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
    async def run(
        self,
        text: str,
        *,
        model: str | None = None,
        system: str | None = None,
        max_ticks: int | None = None,
        max_timeline_entries: int | None = None,
        permission_level: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        timeout: int | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        """Sends a message; yields what happens, and the `Run` at its end, like `send_stream`.

        One run goes on at a time. Events that are left of an earlier run are skipped.
        """
        while self._following:
            await self._next()
        members = given(
            model=model,
            system=system,
            max_ticks=max_ticks,
            max_timeline_entries=max_timeline_entries,
            permission_level=permission_level,
            tools=tools,
            timeout=timeout,
        )
        frame = {"type": "run", "session_id": self._session_id, "input": text, **members}
        await self._socket.send(frame)
        self._following = True
        while self._following:
            name, data = await self._next()
            if name in ("error", "refused"):
                raise api_error(data.get("status") or 500, data)
            kind = RUN_EVENTS.get(name)
            if kind is not None:
                yield run_event(kind, data)

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
