"""Requests and answers of HTTP/1.1 as bytes, with bodies that fit in memory. No I/O.

What is malformed is refused, never interpreted: a guess about an answer's length could take a part
of it for the answer of the next request.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from paddock.client.errors import ArgumentError

_MOST_HEAD_BYTES = 64 * 1024
# Larger than any JSON of the control plane.
_MOST_BODY_BYTES = 256 * 1024 * 1024
_MOST_FIELDS = 128
_MOST_INTERIM = 16
_MOST_CHUNK_LINE = 1024
# So many chunks of any size, and then such an average: each costs more than its bytes.
_FREE_CHUNKS = 4096
_LEAST_CHUNK_BYTES = 64

_TARGET = re.compile(r"/[!-~]*")
_FIELD_TEXT = re.compile(r"[^\x00-\x1f\x7f]*")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
# A second one could contradict the first.
_SINGLE = frozenset({b"content-length", b"transfer-encoding", b"content-type", b"content-encoding"})
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})


class BadAnswerError(Exception):
    """The bytes are no answer of HTTP/1.1, or exceed a limit."""


@dataclass(frozen=True, slots=True)
class Message:
    """An answer; the names of `headers` are in lower case."""

    http_status: int
    headers: Mapping[bytes, bytes]
    body: bytes


def request_bytes(
    method: str, target: str, fixed: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    """A request; `fixed`: complete lines of its head. Raises: ArgumentError."""
    if _TARGET.fullmatch(target) is None:
        raise ArgumentError("a path begins with a slash and is printable ASCII without spaces")
    lines = [f"{method} {target} HTTP/1.1\r\n{fixed}"]
    for name, value in headers.items():
        if _FIELD_TEXT.fullmatch(value) is None:
            raise ArgumentError(f"the header {name} must not contain control characters")
        lines.append(f"{name}: {value}\r\n")
    if body is not None or method in _WITH_LENGTH:
        lines.append(f"Content-Length: {len(body or b'')}\r\n")
    lines.append("\r\n")
    try:
        head = "".join(lines).encode()
    except UnicodeEncodeError:
        raise ArgumentError("a header has characters that are not UTF-8") from None
    return head + body if body else head


class _Part(Enum):
    """What the next bytes belong to."""

    HEAD = auto()
    BODY = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    REST = auto()
    DONE = auto()


class AnswerParser:
    """Reads one answer from pieces of any size, in time that is linear in their bytes."""

    def __init__(self) -> None:
        self._part = _Part.HEAD
        # Bytes that are not interpreted yet, and how many of them hold no end of a line.
        self._buffer = bytearray()
        self._searched = 0
        self._body = bytearray()
        # Of the body or of its chunk.
        self._missing = 0
        self._chunks = 0
        self._trailer_bytes = 0
        self._interim = 0
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        # Whether the connection may be used again.
        self.lasting = False

    def feed(self, data: bytes) -> Message | None:
        """The answer, if it is complete. Raises: BadAnswerError."""
        self._buffer += data
        while self._step():
            pass
        if self._part is not _Part.DONE:
            return None
        # Nothing was asked that further bytes could answer.
        self.lasting = self.lasting and not self._buffer
        return Message(self._status, self._headers, bytes(self._body))

    def end(self) -> Message | None:
        """The answer, if the end of the connection completes it."""
        if self._part is not _Part.REST:
            return None
        return Message(self._status, self._headers, bytes(self._body))

    def _step(self) -> bool:
        """Reads one part; False: it needs more bytes, or the answer is complete."""
        match self._part:
            case _Part.HEAD:
                return self._read_head()
            case _Part.BODY | _Part.CHUNK:
                return self._read_body()
            case _Part.CHUNK_SIZE:
                return self._read_chunk_size()
            case _Part.CHUNK_END:
                return self._read_chunk_end()
            case _Part.TRAILER:
                return self._read_trailer()
            case _Part.REST:
                self._missing = _MOST_BODY_BYTES + 1 - len(self._body)
                return self._read_body()
            case _Part.DONE:
                return False

    def _read_head(self) -> bool:
        beginning = bytes(self._buffer[:7])
        if not b"HTTP/1.".startswith(beginning):
            raise BadAnswerError("the answer does not begin with HTTP/1")
        head = self._until(b"\r\n\r\n", _MOST_HEAD_BYTES)
        if head is None:
            return False
        first, *lines = head.split(b"\r\n")
        found = _STATUS.fullmatch(first)
        if found is None:
            raise BadAnswerError("the status line is malformed")
        self._status, self._headers = int(found[2]), _fields(lines)
        if 100 <= self._status < 200:
            self._interim += 1
            if self._status == 101 or self._interim > _MOST_INTERIM:
                raise BadAnswerError(f"HTTP {self._status} is not what was asked for")
            return True
        self._frame(modern=found[1] == b"1")
        return True

    def _frame(self, *, modern: bool) -> None:
        """Finds out how the body ends."""
        fields = self._headers
        options = fields.get(b"connection", b"").lower().split(b",")
        self.lasting = modern and b"close" not in [option.strip() for option in options]
        coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
        if fields.get(b"content-encoding", b"identity").lower() != b"identity":
            raise BadAnswerError("the body is compressed")
        if coding is not None and (
            coding.lower() != b"chunked" or length is not None or not modern
        ):
            raise BadAnswerError("the length of the body is ambiguous")
        if length is not None and _LENGTH.fullmatch(length) is None:
            raise BadAnswerError("the length of the body is no number")
        if self._status in (204, 304):
            self._part = _Part.DONE
        elif coding is not None:
            self._part = _Part.CHUNK_SIZE
        elif length is not None:
            self._expect(int(length), _Part.BODY)
        else:
            self._part, self.lasting = _Part.REST, False

    def _expect(self, count: int, part: _Part) -> None:
        if len(self._body) + count > _MOST_BODY_BYTES:
            raise BadAnswerError(f"the body has more than {_MOST_BODY_BYTES} bytes")
        self._missing, self._part = count, part

    def _read_body(self) -> bool:
        taken = self._buffer[: self._missing]
        self._body += taken
        del self._buffer[: self._missing]
        self._missing -= len(taken)
        if self._missing:
            return False
        if self._part is _Part.REST:
            raise BadAnswerError(f"the body has more than {_MOST_BODY_BYTES} bytes")
        self._part = _Part.CHUNK_END if self._part is _Part.CHUNK else _Part.DONE
        return True

    def _read_chunk_size(self) -> bool:
        line = self._until(b"\r\n", _MOST_CHUNK_LINE)
        if line is None:
            return False
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise BadAnswerError("the size of a chunk is malformed")
        self._chunks += 1
        if self._chunks > max(_FREE_CHUNKS, len(self._body) // _LEAST_CHUNK_BYTES):
            raise BadAnswerError("the body has too many chunks")
        size = int(found[1], 16)
        self._expect(size, _Part.CHUNK if size else _Part.TRAILER)
        return True

    def _read_chunk_end(self) -> bool:
        if not b"\r\n".startswith(self._buffer[:2]):
            raise BadAnswerError("a chunk is longer than its size")
        if len(self._buffer) < 2:
            return False
        del self._buffer[:2]
        self._part = _Part.CHUNK_SIZE
        return True

    def _read_trailer(self) -> bool:
        line = self._until(b"\r\n", _MOST_HEAD_BYTES - self._trailer_bytes)
        if line is None:
            return False
        self._trailer_bytes += len(line) + 2
        if line:
            _fields([line])
        else:
            self._part = _Part.DONE
        return True

    def _until(self, end: bytes, most: int) -> bytes | None:
        """The bytes before `end`, which are consumed with it; None if `end` has not arrived."""
        place = self._buffer.find(end, self._searched)
        if (len(self._buffer) if place < 0 else place) > most:
            raise BadAnswerError("the head, or a line in the body, is too long")
        if place < 0:
            self._searched = max(0, len(self._buffer) - len(end) + 1)
            return None
        found = bytes(self._buffer[:place])
        del self._buffer[: place + len(end)]
        self._searched = 0
        return found


def _fields(lines: list[bytes]) -> dict[bytes, bytes]:
    """The header fields; of several with one name, a list."""
    if len(lines) > _MOST_FIELDS:
        raise BadAnswerError(f"the head has more than {_MOST_FIELDS} fields")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise BadAnswerError("a header field is malformed")
        name, value = found[1].lower(), found[2].strip(b" \t")
        if name in fields:
            if name in _SINGLE:
                raise BadAnswerError(f"the answer has {name.decode()} twice")
            value = fields[name] + b", " + value
        fields[name] = value
    return fields
