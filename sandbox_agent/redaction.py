"""Takes secrets out of what is recorded, in whatever usual encoding they stand there. Pure.

Control plane and agent use it alike. A text is searched as it is, with its percent-encoding
undone, and with its backslash escapes (JSON's and Python's) undone; in each of these for the
values themselves, for their base64 in all three alignments and both alphabets, and for their
hexadecimal digits, white space between the characters of both aside. Everything takes time in
proportion to the text, whatever is in it; and what is done for each escape of it is done by the
interpreter's own loops.
"""

import base64
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

MARK = "[redacted]"
# Shorter values would be found by chance. Longer ones are no keys, tokens or certificates.
LEAST_BYTES = 8
MOST_BYTES = 32 * 1024

_MARK = MARK.encode()
# Escapes, each as one group. In a text that ends within one, a shorter one may be found there.
_PERCENT = re.compile(rb"(%[0-9A-Fa-f]{2})")
_BACKSLASH = re.compile(
    rb"(\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}"
    rb"|u[0-9A-Fa-f]{4}|U(?:000[0-9A-Fa-f]{5}|0010[0-9A-Fa-f]{4})|x[0-9A-Fa-f]{2}|.))",
    re.DOTALL,
)
_LONGEST_ESCAPE = len(rb"\ud800\udc00")
# No other thread runs while the interpreter splits so much of a text.
_BLOCK_BYTES = 64 * 1024
# What begins up to here in a block ends in it.
_SURE_BYTES = _BLOCK_BYTES - _LONGEST_ESCAPE
_HIGH_BYTE = re.compile(rb"\\x[89a-fA-F]")
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_SPACE = re.compile(rb"([ \t\r\n]+)")
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
                    place = place or _undone(data, _SPACE, b" ", lambda _: b"")
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
    """A part of a stream that is to be searched: so many of its bytes can be released then."""

    redactor: Redactor
    data: bytes
    released: int

    def spans(self) -> list[Span]:
        """Where the values are: the only call that takes long, in whatever thread."""
        return self.redactor.spans(self.data)


class RedactedStream:
    """Cuts the values out of a stream, also where they are spread over several pieces.

    It holds back as much as an occurrence may take. `current` gives the redactor, which may
    know further values later. Whoever adds to it asks for the window, searches it, and releases
    it, one after the other.
    """

    def __init__(self, current: Callable[[], Redactor]) -> None:
        self._current = current
        self._held = bytearray()
        # So many of the held bytes are part of an occurrence that was cut out already.
        self._covered = 0

    def add(self, data: bytes) -> None:
        """More of the stream."""
        self._held += data

    def window(self, *, last: bool = False) -> Window | None:
        """What is to be searched now; `last`: all, and what follows is another stream."""
        redactor = self._current()
        margin = 0 if last else redactor.margin
        # Only now and then, so that each byte is looked at a few times at most.
        if not self._held or len(self._held) < 2 * margin:
            return None
        return Window(redactor, bytes(self._held), len(self._held) - margin)

    def release(self, window: Window, spans: Iterable[Span]) -> bytes:
        """What the window releases, given where the values are in it."""
        count = window.released
        pieces: list[bytes | bytearray] = []
        position = self._covered
        for start, end in spans:
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
    """A text of which every other piece was replaced, the second one first."""

    def __init__(self, before: list[bytes], after: list[bytes]) -> None:
        super().__init__(b"".join(after))
        self._lengths = list(map(len, before)), list(map(len, after))
        # Where each piece begins and the last one ends, before and after: known when it is asked.
        self._places: tuple[list[int], list[int]] | None = None

    def span(self, start: int, end: int) -> Span:
        """The bytes that this part was before; a replaced one as a whole."""
        return self._before(start)[0], self._before(end - 1)[1]

    def _before(self, position: int) -> Span:
        if self._places is None:
            before, after = self._lengths
            self._places = list(accumulate(before, initial=0)), list(accumulate(after, initial=0))
        first, then = self._places
        # Of pieces that begin there the last one does: others are empty.
        number = bisect_right(then, position) - 1
        if number % 2:
            return first[number], first[number + 1]
        place = first[number] + position - then[number]
        return place, place + 1


def _layers(data: bytes) -> Iterator[_Layer]:
    yield _Layer(data)
    if b"%" in data or b"+" in data:
        layer = _undone(data, _PERCENT, b"%", lambda escape: bytes.fromhex(escape[1:].decode()))
        layer.spaced = layer.data.translate(_PLUS)
        yield layer
    if b"\\" in data:
        yield _undone(data, _BACKSLASH, b"\\", _unescaped)
    if _HIGH_BYTE.search(data):
        # Where bytes are escaped, `\xe9` stands for a byte; where a text is, for a character.
        yield _undone(data, _BACKSLASH, b"\\", _unescaped_characters)


class _Known(dict[bytes, bytes]):
    """What each escape stands for, worked out once."""

    def __init__(self, undo: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._undo = undo

    def __missing__(self, escape: bytes) -> bytes:
        found = self[escape] = self._undo(escape)
        return found


def _unescaped_characters(escape: bytes) -> bytes:
    if escape[1:2] == b"x" and len(escape) > 2:
        return chr(int(escape[2:], 16)).encode()
    return _unescaped(escape)


def _unescaped(escape: bytes) -> bytes:
    letter, digits = escape[1:2], escape[2:]
    if not digits:
        return _LETTERS.get(letter, letter)
    if letter == b"x":
        return bytes([int(digits, 16)])
    if len(digits) > 8:
        high, low = digits.split(b"\\u")
        pair = ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF) + 0x10000
        return chr(pair).encode()
    return chr(int(digits, 16)).encode("utf-8", "surrogatepass")


def _undone(
    data: bytes, pattern: re.Pattern[bytes], mark: bytes, undo: Callable[[bytes], bytes]
) -> _Layer:
    """The data with the escapes that the pattern finds undone; each begins with the mark."""
    before = _split(data, pattern, mark)
    after = before.copy()
    after[1::2] = map(_Known(undo).__getitem__, before[1::2])
    return _Replaced(before, after)


def _split(data: bytes, pattern: re.Pattern[bytes], mark: bytes) -> list[bytes]:
    """What is between the escapes and the escapes, in turn; as of the whole, done in blocks."""
    pieces, position = [b""], 0
    while position < len(data):
        block = data[position : position + _BLOCK_BYTES]
        found = pattern.split(block)
        end = len(block)
        if position + end < len(data):
            # What begins so near to the block's end may be another escape when all of it is seen.
            while len(found) > 1 and end - len(found[-1]) - len(found[-2]) > _SURE_BYTES:
                end -= len(found.pop()) + len(found.pop())
            begun = block.find(mark, max(_SURE_BYTES, end - len(found[-1])), end)
            if begun >= 0:
                found[-1] = found[-1][: begun - end]
                end = begun
        pieces[-1] += found[0]
        pieces += found[1:]
        position += end
    return pieces


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
