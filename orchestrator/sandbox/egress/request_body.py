"""Finds the end of a request's body, so that nothing after it is passed on. Pure."""

import re
from enum import Enum

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,12}")
_MOST_LINE = 256


class BodyError(ValueError):
    """Chunks that are malformed."""


class _Expects(Enum):
    SIZE = "size"
    DATA = "data"
    END_OF_DATA = "end of data"
    END = "end"


class SizedBody:
    """A body of a known length."""

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def complete(self) -> bool:
        """Whether all of it was taken."""
        return self._left == 0

    def take(self, data: bytes) -> int:
        """The number of bytes at the beginning of `data` that belong to it."""
        taken = min(self._left, len(data))
        self._left -= taken
        return taken


class ChunkedBody:
    """A body in chunks. Extensions and trailers are refused."""

    def __init__(self) -> None:
        self._expects = _Expects.SIZE
        self._line = b""
        self._left = 0
        self.complete = False

    def take(self, data: bytes) -> int:
        """The number of bytes at the beginning of `data` that belong to it. Raises: BodyError."""
        at = 0
        while at < len(data) and not self.complete:
            if self._expects is _Expects.DATA:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                if self._left == 0:
                    self._expects = _Expects.END_OF_DATA
            else:
                self._line += data[at : at + 1]
                at += 1
                self._read_line()
        return at

    def _read_line(self) -> None:
        """Raises: BodyError."""
        if len(self._line) > _MOST_LINE:
            raise BodyError("a chunk's size is malformed")
        if not self._line.endswith(b"\n"):
            return
        line, self._line = self._line, b""
        if not line.endswith(b"\r\n"):
            raise BodyError("a chunk's line does not end in CR LF")
        line = line[:-2]
        if self._expects is _Expects.SIZE:
            if not _SIZE.fullmatch(line):
                raise BodyError("a chunk's size is malformed")
            self._left = int(line, 16)
            self._expects = _Expects.DATA if self._left else _Expects.END
        elif line:
            raise BodyError("a chunk does not end where its size says, or there is a trailer")
        elif self._expects is _Expects.END:
            self.complete = True
        else:
            self._expects = _Expects.SIZE


Body = SizedBody | ChunkedBody


def body_of(length: int | None) -> Body:
    """The body of that length; None: in chunks."""
    return ChunkedBody() if length is None else SizedBody(length)
