"""The frames between the control plane and the runner of a code context. Pure.

A frame is a line, `KIND NAME SIZE`, and as many bytes as it says. To the runner:

    run    CELL   the code of a cell

From the runner, which sends `end` once for each cell:

    ready  KERNEL the runner takes cells from now on; the kernel is what executes them
    no     -      there is no such language: the names of those that there are, with spaces between
    out, err -    what was printed
    part   TYPE   a part of the next value: text, or base64 for binary types; or a part of the next
                  error: `name`, `message` or `traceback`
    display, result -  a value, of the parts before it; the result is that of the cell's last line
    error  -      an exception, of the parts before it
    cut    -      the number of bytes that were left out, above the limits below
    end    CELL   the cell has ended: the number of cells that the context has executed

Only the runner keeps to this. Whatever else has its descriptor can write anything to it, so the
control plane applies the limits again, and a frame that is wrong ends the context.
"""

import re
from typing import NamedTuple

MOST_FRAME_BYTES = 4 * 1024 * 1024
# The limits of one cell: what it prints, its values and their parts, and all of it together.
MOST_PRINTED_BYTES = 1024 * 1024
MOST_VALUES = 64
MOST_PARTS = 32
MOST_CELL_BYTES = 8 * 1024 * 1024
# The texts of an error, and a value's plain text.
MOST_TEXT_BYTES = 64 * 1024
# The most of JSON, which the control plane reads.
MOST_JSON_BYTES = 256 * 1024
# What a table and a chart are as data.
TABLE_TYPE = "application/vnd.paddock.table+json"
CHART_TYPE = "application/vnd.paddock.chart+json"
NOTHING = "-"

_MOST_HEADER_BYTES = 160
_HEADER = re.compile(rb"([a-z]{1,8}) ([!-~]{1,128}) ([0-9]{1,8})")


class CodeFrameError(ValueError):
    """Bytes that are not a valid frame."""


class CodeFrame(NamedTuple):
    """One frame."""

    kind: str
    name: str
    data: bytes


def encode(kind: str, data: bytes = b"", name: str = NOTHING) -> bytes:
    """The frame's bytes."""
    return b"%s %s %d\n%s" % (kind.encode(), name.encode(), len(data), data)


class CodeFrames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        # The frame whose bytes are awaited: kind, name and size.
        self._begun: tuple[str, str, int] | None = None

    def feed(self, data: bytes) -> list[CodeFrame]:
        """The frames that are complete now. Raises: CodeFrameError."""
        self._waiting += data
        found: list[CodeFrame] = []
        at = 0
        while True:
            if self._begun is None:
                end = self._waiting.find(b"\n", at, at + _MOST_HEADER_BYTES)
                if end < 0:
                    if len(self._waiting) - at >= _MOST_HEADER_BYTES:
                        raise CodeFrameError("the beginning of a frame is too long")
                    break
                self._begun = _begun(bytes(self._waiting[at:end]))
                at = end + 1
            kind, name, size = self._begun
            if len(self._waiting) - at < size:
                break
            found.append(CodeFrame(kind, name, bytes(self._waiting[at : at + size])))
            at += size
            self._begun = None
        del self._waiting[:at]
        return found


def _begun(header: bytes) -> tuple[str, str, int]:
    matched = _HEADER.fullmatch(header)
    if matched is None:
        raise CodeFrameError("the beginning of a frame is malformed")
    kind, name, size = (group.decode() for group in matched.groups())
    if int(size) > MOST_FRAME_BYTES:
        raise CodeFrameError("a frame is too long")
    return kind, name, int(size)
