"""Live terminals: a session's shell, or a view of one of its terminals, over a WebSocket."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

from paddock.client.answers import read
from paddock.client.errors import NotPaddockError
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.websocket import Socket
from paddock.contract.base import Model
from paddock.contract.live_terminals import (
    TerminalEnd,
    TerminalExit,
    TerminalLost,
    TerminalOpened,
    TerminalResized,
    WatchedTerminal,
)

# The server's frames are smaller.
_MOST_FRAME_BYTES = 1024 * 1024
Frame = bytes | TerminalResized | TerminalLost | TerminalExit
_KINDS: dict[str, type[Model]] = {
    "terminal": TerminalOpened,
    "resize": TerminalResized,
    "lost": TerminalLost,
    "exit": TerminalExit,
}


class LiveTerminal(Face[F]):
    """An open terminal; `close` leaves it, and a shell then stays open.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.

    Attributes:
        info: the terminal's id, its size, and whether it can be written to.
        exit: how its program has ended, once it has: `exit_code`, `signal` and `reason`.
    """

    def __init__(
        self, link: Link, held: AsyncExitStack, socket: Socket, info: WatchedTerminal
    ) -> None:
        super().__init__(link)
        self.info = info
        self.exit: TerminalEnd | None = None
        self._held = held
        self._socket = socket

    @stream
    async def output(self) -> AsyncGenerator[Frame, None]:
        """What the terminal shows: its bytes, changes of its size, losses, and finally its exit.

        Raises: ConnectionLostError if the connection ends before the terminal does.
        """
        while self.exit is None:
            told = await self._socket.receive()
            frame = told if isinstance(told, bytes) else _frame(told)
            if isinstance(frame, TerminalExit):
                self.exit = frame.exit
            yield frame

    @method
    async def write(self, data: bytes) -> None:
        """Types the bytes into a shell."""
        await self._socket.send(data)

    @method
    async def resize(self, columns: int, rows: int) -> None:
        """Gives a shell another size, for all who watch it."""
        await self._socket.send({"resize": {"cols": columns, "rows": rows}})

    @method
    async def close(self) -> None:
        """Leaves the terminal."""
        await self._held.aclose()


async def opened(link: Link, path: str, params: dict[str, Any]) -> "LiveTerminal[Any]":
    """The terminal at the other end of a new WebSocket."""
    async with AsyncExitStack() as held:
        socket = await held.enter_async_context(
            link.transport.websocket(path, params, "paddock.terminal", _MOST_FRAME_BYTES)
        )
        first = await socket.receive()
        frame = None if isinstance(first, bytes) else _frame(first)
        if not isinstance(frame, TerminalOpened):
            raise NotPaddockError("the WebSocket is not one of Paddock's terminals")
        return LiveTerminal(link, held.pop_all(), socket, frame.terminal)


def _frame(told: dict[str, Any]) -> Any:
    """The model of a text frame. Raises: NotPaddockError, OldServerError."""
    for name, model in _KINDS.items():
        if name in told:
            return read(model, told)
    raise NotPaddockError("the WebSocket sent a frame that this client does not know")
