"""The runner's side of the frames, with the limits of a cell."""

import os
import queue
import threading
from collections.abc import Callable, Iterable

from sandbox_agent.decide import code_frames
from sandbox_agent.decide.code_frames import CodeFrame, CodeFrames

Parts = dict[str, str]
_READ_BYTES = 64 * 1024
# Frames that wait for the pipe; more block those who send.
_MOST_WAITING = 256


class Channel:
    """Takes cells, and sends what comes of them.

    A thread writes, because an interrupt is raised in the main thread, in the middle of anything.
    """

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._frames = CodeFrames()
        self._taken: list[CodeFrame] = []
        self._sending: queue.Queue[list[CodeFrame]] = queue.Queue(_MOST_WAITING)
        self._limits = _Limits()
        # Sends what was printed before; it is replaced once there are streams.
        self.flush: Callable[[], None] = lambda: None
        threading.Thread(target=self._write, daemon=True).start()

    def take(self) -> CodeFrame | None:
        """The next cell; None after the last one."""
        while not self._taken:
            data = os.read(self._reads, _READ_BYTES)
            if not data:
                return None
            self._taken = self._frames.feed(data)
        return self._taken.pop(0)

    def send(self, kind: str, data: bytes = b"", name: str = code_frames.NOTHING) -> None:
        """Sends one frame."""
        self._sending.put([CodeFrame(kind, name, data)])

    def value(self, kind: str, parts: Parts) -> None:
        """Sends a value or an error, which has these parts; too many of them are left out."""
        self.flush()
        frames = [
            CodeFrame("part", name, text.encode("utf-8", "backslashreplace"))
            for name, text in list(parts.items())[: code_frames.MOST_PARTS]
        ]
        self._sending.put([*frames, CodeFrame(kind, code_frames.NOTHING, b"")])

    def end(self, cell: str, count: int) -> None:
        """Sends the end of the cell, and returns when everything is written."""
        self.send("end", str(count).encode(), cell)
        self.flushed()

    def flushed(self) -> None:
        """Returns when everything is written."""
        self._sending.join()

    def _write(self) -> None:
        while True:
            frames = self._sending.get()
            for frame in self._limits.within(frames):
                _write_all(self._writes, code_frames.encode(frame.kind, frame.data, frame.name))
            self._sending.task_done()


class _Limits:
    """Leaves out what is above the limits of a cell, and says how much that was."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._printed = self._values = self._bytes = self._cut = 0

    def within(self, frames: list[CodeFrame]) -> Iterable[CodeFrame]:
        """The frames that may be sent."""
        last = frames[-1]
        if last.kind in ("out", "err"):
            return self._of_printed(last)
        if last.kind in ("display", "result"):
            return self._of_value(frames)
        if last.kind == "end":
            cut = self._cut
            self._begin()
            return [*([CodeFrame("cut", "-", str(cut).encode())] if cut else []), last]
        return frames

    def _of_printed(self, frame: CodeFrame) -> list[CodeFrame]:
        kept = frame.data[: max(0, code_frames.MOST_PRINTED_BYTES - self._printed)]
        self._printed += len(kept)
        self._cut += len(frame.data) - len(kept)
        return [frame._replace(data=kept)] if kept else []

    def _of_value(self, frames: list[CodeFrame]) -> list[CodeFrame]:
        kept = []
        room = code_frames.MOST_CELL_BYTES - code_frames.MOST_PRINTED_BYTES - self._bytes
        for frame in frames[:-1]:
            size = len(frame.data)
            if size > min(_most(frame.name), room) or self._values >= code_frames.MOST_VALUES:
                self._cut += size
                continue
            room -= size
            self._bytes += size
            kept.append(frame)
        self._values += 1
        return [*kept, frames[-1]] if kept else []


def _most(name: str) -> int:
    """The most bytes of a part of that type."""
    json = name == "application/json" or name.endswith("+json")
    return code_frames.MOST_JSON_BYTES if json else code_frames.MOST_FRAME_BYTES


def shortened(text: str, most: int = code_frames.MOST_TEXT_BYTES) -> str:
    """The text, or its beginning and a note, in at most `most` bytes."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= most:
        return text
    kept = data[: most - 40].decode("utf-8", "ignore")
    return f"{kept}[{len(data) - len(kept.encode())} more bytes]"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
