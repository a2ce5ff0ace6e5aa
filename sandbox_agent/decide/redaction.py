"""Removes secrets from what is recorded, in all the usual encodings. Pure.

The control plane and the agent both use this. A text is searched as it is, with its
percent-encoding undone, and with its backslash escapes (JSON's and Python's) undone. Each form is
searched for the values themselves, for their base64 in all three alignments and both alphabets, and
for their hexadecimal digits; white space between the characters of base64 and hexadecimal is
ignored. The time is proportional to the text's length, whatever it contains.
"""

import base64
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sandbox_agent.decide.escapes import PLUS, Layer, Span, layers, unspaced

MARK = "[redacted]"
# Shorter values would match by chance. Longer ones are not keys, tokens or certificates.
LEAST_BYTES = 8
MOST_BYTES = 32 * 1024

_MARK = MARK.encode()
_SPACES = b" \t\r\n"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
# Marks of a cut, besides the end of a text; the last one separates the texts of an object.
_CUTS = (b"...", "…".encode(), b"[", b"\0")
# Limit on the beginnings of a value that are examined in one text.
_MOST_BEGINNINGS = 64
# `\u0041` for one byte is the longest encoding; alignment and a line break add to it.
_LONGEST_ENCODING = 6
_SLACK = 64


class Redactor:
    """Cuts values out of texts. Without values it changes nothing."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Values shorter than LEAST_BYTES are not searched for."""
        encoded = {value.encode() for value in values}
        found = sorted(value for value in encoded if len(value) >= LEAST_BYTES)
        self._plain = found
        self._spaced = [value.translate(PLUS) for value in found]
        self._base64 = [_base64_inside(value, before) for value in found for before in range(3)]
        self._hex = [value.hex().encode() for value in found]
        longest = max(map(len, found), default=0)
        # The most bytes that an occurrence takes in a text, over all encodings.
        self.margin = longest * _LONGEST_ENCODING + _SLACK if found else 0

    def __bool__(self) -> bool:
        """Whether there is anything to cut."""
        return bool(self._plain)

    def text(self, text: str) -> str:
        """The text with the values cut out."""
        if not self._plain:
            return text
        data = text.encode("utf-8", "surrogatepass")
        cut = self.data(data)
        if cut is data:
            return text
        # Values are whole characters, so what is left is too.
        return cut.decode("utf-8", "surrogatepass")

    def data(self, data: bytes) -> bytes:
        """The bytes with the values cut out; the same object if there were none."""
        spans = self.spans(data)
        if not spans:
            return data
        pieces, position = [], 0
        for start, end in spans:
            pieces += [data[position:start], _MARK]
            position = end
        return b"".join((*pieces, data[position:]))

    def value(self, value: Any) -> Any:
        """A JSON value with the values cut out, names of members included.

        Returns the same object if nothing was found.
        """
        if not self._plain:
            return value
        # Most values contain none. One search over all texts together shows that.
        joined = "\0".join(_texts(value)).encode("utf-8", "surrogatepass")
        return self._cut(value) if self.spans(joined) else value

    def members(
        self, members: Mapping[str, Any], known: Container[str] | None = None
    ) -> dict[str, Any]:
        """The members with the values cut out of them, but not out of `known` names.

        Known names are part of a format; None stands for all names. Names within a member's value
        are always searched.
        """
        if not self._plain:
            return dict(members)
        values = self.value(list(members.values()))
        names = (name if known is None or name in known else self.text(name) for name in members)
        return dict(zip(names, values, strict=True))

    def _cut(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._cut(name): self._cut(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._cut(item) for item in value]
        return value

    def spans(self, data: bytes) -> list[Span]:
        """The positions of the values, in order and not adjoining."""
        if not self._plain or len(data) < LEAST_BYTES:
            return []
        found: list[Span] = []
        for layer in layers(data):
            found += (layer.span(*span) for span in self._search(layer))
        return _merged(found)

    def _search(self, layer: Layer) -> Iterator[Span]:
        data, place = layer.data, None
        for text, needles in ((data, self._plain), (layer.spaced, self._spaced)):
            for needle in needles:
                # Most texts don't contain even the beginning of a value.
                if needle[:LEAST_BYTES] in text:
                    yield from _occurrences(text, needle)
        compact = data.translate(_URL_SAFE, _SPACES)
        for text, needles in ((compact, self._base64), (compact.lower(), self._hex)):
            for needle in needles:
                if needle[:LEAST_BYTES] in text:
                    place = place or unspaced(data)
                    yield from (place.span(*span) for span in _occurrences(text, needle))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(name)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


class Window(NamedTuple):
    """A part of a stream to search; `released` bytes of it can be released afterwards."""

    redactor: Redactor
    data: bytes
    released: int

    def spans(self) -> list[Span]:
        """The positions of the values. Only this call takes long, and it may run in any thread."""
        return self.redactor.spans(self.data)


class RedactedStream:
    """Cuts values out of a stream, including values spread over several pieces.

    It holds back as many bytes as an occurrence may take. `current` returns the redactor, which may
    know more values later. The caller takes a window, searches it and releases it, one window at a
    time.
    """

    def __init__(self, current: Callable[[], Redactor]) -> None:
        self._current = current
        self._buffer = bytearray()
        # The number of buffered bytes that belong to an occurrence already cut out.
        self._covered = 0

    def add(self, data: bytes) -> None:
        """Adds a piece of the stream."""
        self._buffer += data

    def window(self, *, last: bool = False) -> Window | None:
        """The part to search now; with `last`, everything, and what follows is a new stream."""
        redactor = self._current()
        margin = 0 if last else redactor.margin
        # Wait for enough bytes, so that each byte is searched only a few times.
        if not self._buffer or len(self._buffer) < 2 * margin:
            return None
        return Window(redactor, bytes(self._buffer), len(self._buffer) - margin)

    def release(self, window: Window, spans: Iterable[Span]) -> bytes:
        """Releases the window's bytes without the values, given their positions."""
        count = window.released
        pieces: list[bytes | bytearray] = []
        position = self._covered
        for start, end in spans:
            if start >= count:
                break
            if end > position:
                if start >= position:
                    pieces += [self._buffer[position:start], _MARK]
                position = end
        if position < count:
            pieces.append(self._buffer[position:count])
        self._covered = max(0, position - count)
        del self._buffer[:count]
        return b"".join(pieces)


def _base64_inside(data: bytes, before: int) -> bytes:
    """The base64 characters that depend on `data` alone if `before` other bytes precede it."""
    first = (before * 8 + 5) // 6
    last = (before + len(data)) * 8 // 6
    return base64.b64encode(bytes(before) + data)[first:last]


def _occurrences(data: bytes, needle: bytes) -> Iterator[Span]:
    """The needle's positions, with overlapping ones merged, and its beginnings where it was cut."""
    size = len(needle)
    first = data.find(needle)
    while first >= 0:
        last = first
        following = data.find(needle, last + 1)
        while 0 <= following < last + size:
            # The needle overlaps itself, possibly many times at the same step. Only the tail of
            # each further occurrence then needs to be compared.
            step = following - last
            tail, end = needle[size - step :], following + size
            while data.startswith(tail, end):
                end += step
            last = end - size
            following = data.find(needle, last + 1)
        yield first, last + size
        first = following
    yield from _beginnings(data, needle)


def _beginnings(data: bytes, needle: bytes) -> Iterator[Span]:
    """The positions where the needle begins but was cut: what is left of it is still secret."""
    head = needle[:LEAST_BYTES]
    start = data.find(head)
    for _ in range(_MOST_BEGINNINGS):
        if start < 0:
            return
        end = start + _common(data, start, needle)
        if end == len(data) or data.startswith(_CUTS, end):
            yield start, end
        start = data.find(head, start + 1)


def _common(data: bytes, start: int, needle: bytes) -> int:
    """The number of bytes from `start` on that match the needle."""
    least, most = LEAST_BYTES, min(len(needle), len(data) - start)
    while least < most:
        middle = (least + most + 1) // 2
        if data[start + least : start + middle] == needle[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
