"""One cell: what it printed, showed and raised, as it comes, within bounds."""

import asyncio
import base64
import binascii
import codecs
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from orchestrator.ground import strict_json
from sandbox_agent.decide import code_frames
from sandbox_agent.decide.code_frames import CodeFrame, CodeFrameError

# The most pieces of output and values; what is printed beyond them is left out.
_MOST_EVENTS = 10_000
# No runner of ours sends as much for a cell: frames, and their bytes.
_MOST_FRAMES = code_frames.MOST_PRINTED_BYTES + 10_000
_MOST_FRAME_BYTES = 2 * code_frames.MOST_CELL_BYTES
_STREAMS = {"out": "stdout", "err": "stderr"}
_BINARY = frozenset({"image/png", "image/jpeg", "application/pdf"})
_JSON = frozenset({"application/json", code_frames.TABLE_TYPE, code_frames.CHART_TYPE})


class CellStatus(StrEnum):
    """How a cell ended."""

    OK = "ok"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    DIED = "died"


class CellText(NamedTuple):
    """Text that a cell printed; `stream` is stdout or stderr."""

    stream: str
    text: str


class Value(NamedTuple):
    """A value by MIME types: text, base64 for binary types, or JSON that is read.

    `main`: it is the value of the cell's last line.
    """

    main: bool
    parts: dict[str, Any]


class Raised(NamedTuple):
    """An exception."""

    name: str
    message: str
    traceback: str


CellEvent = CellText | Value | Raised


class CellEnd(NamedTuple):
    """A cell's end. `lost`: its context has ended, and with it all names.

    `seq` and `hash` are the place of its event in the chain.
    """

    status: CellStatus
    execution_count: int
    duration_ms: int
    lost: bool
    seq: int
    hash: str


@dataclass(slots=True, eq=False)
class Cell:
    """A cell that was begun. `events` grows until `done`, whose result is its end."""

    id: str
    context: str
    language: str
    command_id: str
    # Whether the context was begun anew for it, after its program had ended by itself.
    restarted: bool
    done: asyncio.Future[CellEnd]
    # Why it is to be stopped, once somebody wants that.
    stopping: asyncio.Future[CellStatus]
    events: list[CellEvent] = field(default_factory=list)
    error: Raised | None = None
    values: int = 0
    printed_bytes: int = 0
    value_bytes: int = 0
    cut_bytes: int = 0
    execution_count: int = 0
    _parts: list[CodeFrame] = field(default_factory=list)
    _pending_bytes: int = 0
    _taken_frames: int = 0
    _taken_bytes: int = 0
    _decoders: dict[str, Any] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, why: CellStatus) -> None:
        """Asks for its end; the first reason counts."""
        if not self.stopping.done():
            self.stopping.set_result(why)

    def finish(self, end: CellEnd) -> None:
        """Sets the end, and wakes all that follow it."""
        self.done.set_result(end)
        self._wake()

    def abandon(self) -> None:
        """Leaves its end to the next control plane; all that wait for it are cancelled."""
        self.done.cancel()
        self._wake()

    async def follow(self, seconds: float) -> AsyncGenerator[CellEvent | None]:
        """Its events as they come, to its end; None if there was none for so many seconds.

        Raises: CancelledError once it is abandoned.
        """
        at = 0
        while True:
            while at < len(self.events):
                yield self.events[at]
                at += 1
            if self.done.done():
                self.done.result()
                return
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                yield None

    def take(self, frame: CodeFrame) -> bool:
        """Takes a frame of the runner; returns whether it is the cell's end.

        Raises: CodeFrameError for one that does not belong here.
        """
        self._taken_frames += 1
        self._taken_bytes += len(frame.data)
        if self._taken_frames > _MOST_FRAMES or self._taken_bytes > _MOST_FRAME_BYTES:
            raise CodeFrameError("there are more frames than a cell can have")
        if frame.kind in _STREAMS:
            self.print(_STREAMS[frame.kind], frame.data)
        elif frame.kind == "part":
            self._take_part(frame)
        elif frame.kind in ("result", "display"):
            self._take_value(main=frame.kind == "result")
        elif frame.kind == "error":
            self._take_error()
        elif frame.kind == "cut":
            self.cut_bytes += _number(frame)
        elif frame.kind == "end":
            self.execution_count = _number(frame)
            return frame.name == self.id
        else:
            raise CodeFrameError(f"a frame of the kind {frame.kind} does not belong to a cell")
        return False

    def print(self, stream: str, data: bytes) -> None:
        """Adds what was printed, as far as it is within the bounds."""
        room = code_frames.MOST_PRINTED_BYTES - self.printed_bytes
        if len(self.events) >= _MOST_EVENTS:
            room = 0
        kept = data[:room]
        self.printed_bytes += len(kept)
        self.cut_bytes += len(data) - len(kept)
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        if text := decoder.decode(kept):
            self._add(CellText(stream, text))

    def _take_part(self, frame: CodeFrame) -> None:
        self._pending_bytes += len(frame.data)
        if len(self._parts) >= code_frames.MOST_PARTS:
            raise CodeFrameError("a value has too many parts")
        if self._pending_bytes > code_frames.MOST_CELL_BYTES:
            raise CodeFrameError("a value is too large")
        self._parts.append(frame)

    def _take_value(self, *, main: bool) -> None:
        parts, size = self._taken()
        most = code_frames.MOST_CELL_BYTES - code_frames.MOST_PRINTED_BYTES
        crowded = self.values >= code_frames.MOST_VALUES or len(self.events) >= _MOST_EVENTS
        if crowded or self.value_bytes + size > most:
            self.cut_bytes += size
            return
        read = {name: _read(name, data) for name, data in parts.items()}
        self.values += 1
        self.value_bytes += size
        self._add(Value(main, {name: part for name, part in read.items() if part is not None}))

    def _take_error(self) -> None:
        parts, _ = self._taken()
        texts = [
            parts.get(name, b"")[: code_frames.MOST_TEXT_BYTES].decode(errors="replace")
            for name in ("name", "message", "traceback")
        ]
        if self.error is None:
            self.error = Raised(*texts)
            self._add(self.error)

    def _taken(self) -> tuple[dict[str, bytes], int]:
        """The parts of the value that is complete now, and their bytes."""
        parts, size = {part.name: part.data for part in self._parts}, self._pending_bytes
        self._parts, self._pending_bytes = [], 0
        return parts, size

    def _add(self, event: CellEvent) -> None:
        self.events.append(event)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _read(name: str, data: bytes) -> Any:
    """A part as it is passed on; None for one that is not what its type says."""
    if name in _JSON:
        if len(data) > code_frames.MOST_JSON_BYTES:
            return None
        try:
            return strict_json.read(data, name)
        except strict_json.JsonError:
            return None
    if name in _BINARY:
        data = data.replace(b"\n", b"")
        try:
            base64.b64decode(data, validate=True)
        except binascii.Error:
            return None
    return data.decode(errors="replace")


def _number(frame: CodeFrame) -> int:
    if len(frame.data) > 15 or not frame.data.isdigit():
        raise CodeFrameError(f"a frame of the kind {frame.kind} has no number")
    return int(frame.data)
