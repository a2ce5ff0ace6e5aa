"""Who watches a terminal: each viewer gets its output as it came, through a buffer of its own.

The program never waits for a viewer, so that one who does not read delays nobody, and what is typed
takes effect at once. A viewer that is too far behind loses the oldest output and learns how much;
the terminal's recording has all of it.
"""

import asyncio
from typing import NamedTuple

from orchestrator.ground.errors import BusyError
from orchestrator.work.terminals.pages import Exit

# Viewers of one terminal.
MOST_VIEWERS = 16
# The latest output, which a new viewer gets first: enough for any screen.
HELD_BYTES = 64 * 1024
# The bytes that one viewer may be behind, and those that are kept after a loss.
MOST_BEHIND_BYTES = 1024 * 1024
_KEPT_BYTES = 256 * 1024
# The bytes of one piece for a viewer.
PIECE_BYTES = 64 * 1024


class LossShown(NamedTuple):
    """This many bytes of the output are missing here."""

    bytes: int


class Size(NamedTuple):
    """The size of a terminal."""

    columns: int
    rows: int


class EndShown(NamedTuple):
    """The terminal has ended: nothing follows. The exit is None if it is not known."""

    exit: Exit | None
    reason: str


Shown = bytes | LossShown | Size | EndShown


class Viewer:
    """What one viewer has not seen yet."""

    def __init__(self, held: bytes) -> None:
        self._output = bytearray(held)
        self._lost = 0
        self._size: Size | None = None
        self._ended: EndShown | None = None
        self._changed = asyncio.Event()

    def add(self, data: bytes) -> None:
        """Adds output; if that is too much, the oldest is lost."""
        self._output += data
        if len(self._output) > MOST_BEHIND_BYTES:
            lost = len(self._output) - _KEPT_BYTES
            del self._output[:lost]
            self._lost += lost
        self._changed.set()

    def resize(self, size: Size) -> None:
        """The terminal has this size now."""
        self._size = size
        self._changed.set()

    def end(self, ended: EndShown) -> None:
        """Nothing follows what is there."""
        self._ended = ended
        self._changed.set()

    async def next(self) -> Shown:
        """What is to be shown next; `EndShown` is the last."""
        while True:
            found = self._take()
            if found is not None:
                return found
            self._changed.clear()
            await self._changed.wait()

    def _take(self) -> Shown | None:
        if self._lost:
            lost, self._lost = LossShown(self._lost), 0
            return lost
        if self._size is not None:
            size, self._size = self._size, None
            return size
        if self._output:
            piece = bytes(self._output[:PIECE_BYTES])
            del self._output[:PIECE_BYTES]
            return piece
        return self._ended


class Viewers:
    """The viewers of one terminal, and its last output."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self._held = bytearray()
        self._open: set[Viewer] = set()
        self._ended: EndShown | None = None

    def __len__(self) -> int:
        """The number of viewers."""
        return len(self._open)

    def join(self, *, held: bool = True) -> Viewer:
        """A viewer, who must `leave`; without `held`, one of what is printed from now on.

        Raises: BusyError if there are too many."""
        if len(self._open) >= MOST_VIEWERS:
            raise BusyError(f"{MOST_VIEWERS} viewers watch this terminal already")
        viewer = Viewer(bytes(self._held) if held else b"")
        if self._ended is not None:
            viewer.end(self._ended)
        self._open.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """The viewer is gone; does nothing when repeated."""
        self._open.discard(viewer)

    def show(self, data: bytes) -> None:
        """Shows output to all."""
        self._held += data
        del self._held[:-HELD_BYTES]
        for viewer in self._open:
            viewer.add(data)

    def resize(self, size: Size) -> None:
        """Tells all that the terminal has another size."""
        self.size = size
        for viewer in self._open:
            viewer.resize(size)

    def end(self, ended: EndShown) -> None:
        """Tells all that the terminal has ended, once."""
        if self._ended is None:
            self._ended = ended
            for viewer in self._open:
                viewer.end(ended)
