"""Sparse files in a stream: place, length and data of each range, then the file's length.

Neither side holds more than a piece in memory. Every call blocks.
"""

import os
import struct
from collections.abc import Iterator
from typing import IO, Protocol

from orchestrator.host.workspace.ext4 import data_ranges

# Place and length of a range. The last record has the file's length, and a range of no bytes.
_RECORD = struct.Struct(">QQ")
_PIECE = 64 * 1024


class Readable(Protocol):
    """What can be read in order."""

    def read(self, size: int = -1, /) -> bytes:
        """Reads at most `size` bytes; fewer at the end only."""


class PackedFile:
    """Reads an open file, which nobody changes, in its packed form."""

    def __init__(self, file: IO[bytes]) -> None:
        self._descriptor = file.fileno()
        self._pieces = self._read_pieces()
        self._rest = b""
        ranges = data_ranges(self._descriptor)
        self.size = _RECORD.size + sum(_RECORD.size + end - start for start, end in ranges)

    def read(self, size: int = -1) -> bytes:
        """Reads `size` bytes of the packed form; fewer at its end only. Raises: OSError."""
        while size < 0 or len(self._rest) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
        end = len(self._rest) if size < 0 else size
        taken, self._rest = self._rest[:end], self._rest[end:]
        return taken

    def _read_pieces(self) -> Iterator[bytes]:
        for start, end in data_ranges(self._descriptor):
            yield _RECORD.pack(start, end - start)
            while start < end:
                piece = os.pread(self._descriptor, min(_PIECE, end - start), start)
                if not piece:
                    raise OSError("a file became shorter while it was read")
                yield piece
                start += len(piece)
        yield _RECORD.pack(os.fstat(self._descriptor).st_size, 0)


def unpack(source: Readable, target: IO[bytes]) -> None:
    """Writes a packed file to the empty file `target`, with its holes.

    Raises: ValueError if it is malformed; OSError.
    """
    end = 0
    while True:
        start, length = _RECORD.unpack(_exactly(source, _RECORD.size))
        if start < end:
            raise ValueError("the ranges of a sparse file are out of order")
        if length == 0:
            break
        target.seek(start)
        end = start + length
        while length:
            length -= target.write(_exactly(source, min(_PIECE, length)))
    if source.read(1):
        raise ValueError("a sparse file goes on after its end")
    target.truncate(start)


def _exactly(source: Readable, size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise ValueError("the end of a sparse file is missing")
    return data
