"""Takes secrets out of what is recorded, in whatever usual encoding they stand there. Pure.

Control plane and agent use it alike. A text is searched as it is, with its percent-encoding
undone, and with its backslash escapes (JSON's and Python's) undone; in each of these for the
values themselves, for their base64 in all three alignments and both alphabets, and for their
hexadecimal digits, white space between the characters of both aside. Everything takes time in
proportion to the text, whatever is in it.
"""

import base64
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MARK = "[redacted]"
# Shorter values would be found by chance. Longer ones are no keys, tokens or certificates.
LEAST_BYTES = 8
MOST_BYTES = 32 * 1024

_MARK = MARK.encode()
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_BACKSLASH = re.compile(
    rb"\\(?:u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})"
    rb"|u([0-9A-Fa-f]{4})|U(000[0-9A-Fa-f]{5}|0010[0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))",
    re.DOTALL,
)
_HIGH_BYTE = re.compile(rb"\\x[89a-fA-F]")
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_SPACE = re.compile(rb"[ \t\r\n]+")
_SPACES = b" \t\r\n"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_PLUS = bytes.maketrans(b"+", b" ")
# What stands where a text was cut, besides its end; and between the texts of an object.
_CUTS = (b"...", "…".encode(), b"[", b"\0")
# Beginnings of a value in one text that are looked at, whether they are the last of it.
_MOST_BEGINNINGS = 64
# `\u0041` for one byte is the longest encoding; alignment and a line break come on top.
_LONGEST_ENCODING = 6
_SLACK = 64

Span = tuple[int, int]


class Redactor:
    """Cuts the values out of texts. Without values it leaves everything as it is."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Values that are shorter than LEAST_BYTES are not looked for."""
        encoded = {value.encode() for value in values}
        found = sorted(value for value in encoded if len(value) >= LEAST_BYTES)
        self._plain = found
        self._spaced = [value.translate(_PLUS) for value in found]
        self._base64 = [_base64_inside(value, before) for value in found for before in range(3)]
        self._hex = [value.hex().encode() for value in found]
        longest = max(map(len, found), default=0)
        # How many bytes an occurrence may take in a text, all encodings considered.
        self.margin = longest * _LONGEST_ENCODING + _SLACK if found else 0

    def __bool__(self) -> bool:
        """Whether there is anything to cut."""
        return bool(self._plain)

    def text(self, text: str) -> str:
        """The text without the values."""
        if not self._plain:
            return text
        data = text.encode("utf-8", "surrogatepass")
        cut = self.data(data)
        if cut is data:
            return text
        # Values are whole characters, and so is what is left.
        return cut.decode("utf-8", "surrogatepass")

    def data(self, data: bytes) -> bytes:
        """The bytes without the values; the very same object where nothing was in them."""
        spans = self.spans(data)
        if not spans:
            return data
        pieces, position = [], 0
        for start, end in spans:
            pieces += [data[position:start], _MARK]
            position = end
        return b"".join((*pieces, data[position:]))

    def value(self, value: Any) -> Any:
        """A JSON value without them, in names of members as well; the very same where none is."""
        if not self._plain:
            return value
        # Mostly there are none: that is known from one look at all of its texts.
        joined = "\0".join(_texts(value)).encode("utf-8", "surrogatepass")
        return self._cut(value) if self.spans(joined) else value

    def _cut(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._cut(name): self._cut(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._cut(item) for item in value]
        return value

    def spans(self, data: bytes) -> list[Span]:
        """Where the values are, in order, none touching another."""
        if not self._plain or len(data) < LEAST_BYTES:
            return []
        found: list[Span] = []
        for layer in _layers(data):
            found += (layer.span(*span) for span in self._search(layer))
        return _merged(found)

    def _search(self, layer: "_Layer") -> Iterator[Span]:
        data, place = layer.data, None
        for text, needles in ((data, self._plain), (layer.spaced, self._spaced)):
            for needle in needles:
                # Of most texts not even the beginning of a value is found.
                if needle[:LEAST_BYTES] in text:
                    yield from _occurrences(text, needle)
        compact = data.translate(_URL_SAFE, _SPACES)
        for text, needles in ((compact, self._base64), (compact.lower(), self._hex)):
            for needle in needles:
                if needle[:LEAST_BYTES] in text:
                    place = place or _replaced(data, _SPACE, lambda _: b"")
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


class RedactedStream:
    """Cuts the values out of a stream, also where they are spread over several pieces.

    It holds back as much as an occurrence may take. `current` gives the redactor, which may
    know further values later.
    """

    def __init__(self, current: Callable[[], Redactor]) -> None:
        self._current = current
        self._held = bytearray()
        # So many of the held bytes are part of an occurrence that was cut out already.
        self._covered = 0

    def feed(self, data: bytes) -> bytes:
        """More of the stream; what of it can be told apart from the values by now."""
        self._held += data
        margin = self._current().margin
        # Only now and then, so that each byte is looked at a few times at most.
        return b"" if 0 < len(self._held) < 2 * margin else self._take(len(self._held) - margin)

    def finish(self) -> bytes:
        """What was held back: whatever follows is another stream."""
        return self._take(len(self._held))

    def _take(self, count: int) -> bytes:
        pieces: list[bytes | bytearray] = []
        position = self._covered
        for start, end in self._current().spans(bytes(self._held)):
            if start >= count:
                break
            if end > position:
                if start >= position:
                    pieces += [self._held[position:start], _MARK]
                position = end
        if position < count:
            pieces.append(self._held[position:count])
        self._covered = max(0, position - count)
        del self._held[:count]
        return b"".join(pieces)


def _base64_inside(data: bytes, before: int) -> bytes:
    """The characters that are the data's alone where so many other bytes stand before it."""
    first = (before * 8 + 5) // 6
    last = (before + len(data)) * 8 // 6
    return base64.b64encode(bytes(before) + data)[first:last]


class _Layer:
    """A text with something undone, and where each of its bytes was before."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        # The same with spaces for plus signs, where these may stand for them.
        self.spaced = b""

    def span(self, start: int, end: int) -> Span:
        """The bytes that this part was before."""
        return start, end


class _Replaced(_Layer):
    """A text of which parts were replaced: `pieces` are (start, start before, end before)."""

    def __init__(self, data: bytes, pieces: list[tuple[int, int, int]]) -> None:
        super().__init__(data)
        self._pieces = pieces
        self._starts = [start for start, _, _ in pieces]

    def span(self, start: int, end: int) -> Span:
        """The bytes that this part was before; a replaced one as a whole."""
        return self._before(start)[0], self._before(end - 1)[1]

    def _before(self, position: int) -> Span:
        number = bisect_right(self._starts, position) - 1
        start, first, last = self._pieces[number]
        following = number + 1
        length = (
            self._starts[following] if following < len(self._starts) else len(self.data)
        ) - start
        if last - first != length:
            return first, last
        return first + position - start, first + position - start + 1


def _layers(data: bytes) -> Iterator[_Layer]:
    yield _Layer(data)
    if b"%" in data or b"+" in data:
        layer = _replaced(data, _PERCENT, lambda found: bytes([int(found[1], 16)]))
        layer.spaced = layer.data.translate(_PLUS)
        yield layer
    if b"\\" in data:
        yield _replaced(data, _BACKSLASH, _unescaped)
    if _HIGH_BYTE.search(data):
        # Where bytes are escaped, `\xe9` stands for a byte; where a text is, for a character.
        yield _replaced(data, _BACKSLASH, lambda found: _unescaped(found, characters=True))


def _unescaped(found: re.Match[bytes], *, characters: bool = False) -> bytes:
    high, low, short, long, byte, letter = found.groups()
    if high is not None:
        pair = ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF) + 0x10000
        return chr(pair).encode()
    if short is not None or long is not None:
        return chr(int(short or long, 16)).encode("utf-8", "surrogatepass")
    if byte is not None:
        number = int(byte, 16)
        return chr(number).encode() if characters else bytes([number])
    return _LETTERS.get(letter, letter)


def _replaced(
    data: bytes, pattern: re.Pattern[bytes], replace: Callable[[re.Match[bytes]], bytes]
) -> _Layer:
    """The data with what the pattern finds replaced."""
    pieces: list[tuple[int, int, int]] = []
    parts: list[bytes] = []
    position = length = 0

    def add(part: bytes, first: int, last: int) -> None:
        nonlocal length
        if part:
            pieces.append((length, first, last))
            parts.append(part)
            length += len(part)

    for found in pattern.finditer(data):
        add(data[position : found.start()], position, found.start())
        add(replace(found), found.start(), found.end())
        position = found.end()
    add(data[position:], position, len(data))
    return _Replaced(b"".join(parts), pieces)


def _occurrences(data: bytes, needle: bytes) -> Iterator[Span]:
    """Where the needle is, overlapping occurrences as one; also its beginning where it was cut."""
    size = len(needle)
    first = data.find(needle)
    while first >= 0:
        last = first
        following = data.find(needle, last + 1)
        while 0 <= following < last + size:
            # It overlaps itself, and may do so again and again by the same step: then only the
            # tail of each occurrence is new.
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
    """Where the needle begins, and was cut: what is left of it is no less a secret."""
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
    """How many bytes from there on are as the needle's."""
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
