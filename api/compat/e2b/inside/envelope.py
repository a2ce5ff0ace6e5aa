"""The envelopes of Connect's streams: a byte of flags, four bytes of length, and the data. Pure."""

import struct
from typing import NamedTuple

from orchestrator.ground.errors import TooLargeError, ValidationError

COMPRESSED = 1
END = 2
_HEAD = struct.Struct(">BI")


class Envelope(NamedTuple):
    """One message; with `END` in its flags, the last one."""

    flags: int
    data: bytes


def encode(data: bytes, flags: int = 0) -> bytes:
    """The envelope's bytes."""
    return _HEAD.pack(flags, len(data)) + data


class Decoder:
    """Takes a stream in any pieces, and gives its envelopes one by one."""

    def __init__(self, most: int) -> None:
        """`most`: the bytes that one message may have."""
        self._most = most
        self._buffer = bytearray()

    @property
    def waiting(self) -> int:
        """The bytes that are not given yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Adds bytes. `next` is to be called until it returns None before others are added."""
        self._buffer += data

    def next(self) -> Envelope | None:
        """The next complete envelope; None if more bytes are needed.

        Raises: ValidationError for a compressed one; TooLargeError as soon as a length says so.
        """
        if len(self._buffer) < _HEAD.size:
            return None
        flags, length = _HEAD.unpack_from(self._buffer)
        if flags & COMPRESSED:
            raise ValidationError("messages can't be compressed")
        if length > self._most:
            raise TooLargeError(f"a message has {length} bytes, and at most {self._most} may be")
        end = _HEAD.size + length
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[_HEAD.size : end])
        del self._buffer[:end]
        return Envelope(flags, data)

    def finish(self) -> None:
        """The stream is over. Raises: ValidationError if it was cut in the middle of a message."""
        if self._buffer:
            raise ValidationError("the stream ended in the middle of a message")
