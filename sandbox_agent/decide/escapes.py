"""Undoes one encoding of a text, and knows where each byte was before. Pure.

The time is proportional to the text's length, and the work per escape is left to the interpreter's
own loops.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate

# Escapes, each as one group. At the end of a text, an incomplete escape may match as a shorter one.
_PERCENT = re.compile(rb"(%[0-9A-Fa-f]{2})")
_BACKSLASH = re.compile(
    rb"(\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}"
    rb"|u[0-9A-Fa-f]{4}|U(?:000[0-9A-Fa-f]{5}|0010[0-9A-Fa-f]{4})|x[0-9A-Fa-f]{2}|.))",
    re.DOTALL,
)
_LONGEST_ESCAPE = len(rb"\ud800\udc00")
# No other thread can run while the interpreter splits one block of this size.
_BLOCK_BYTES = 64 * 1024
# An escape that begins before this offset of a block ends within the block.
_SURE_BYTES = _BLOCK_BYTES - _LONGEST_ESCAPE
_HIGH_BYTE = re.compile(rb"\\x[89a-fA-F]")
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_SPACE = re.compile(rb"([ \t\r\n]+)")
# In a percent-encoded text, a plus sign may stand for a space.
PLUS = bytes.maketrans(b"+", b" ")

Span = tuple[int, int]


class Layer:
    """A text with one encoding undone, and the original position of each of its bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        # The same text with spaces for plus signs, if it may be percent-encoded; else empty.
        self.spaced = b""

    def span(self, start: int, end: int) -> Span:
        """The original position of this part."""
        return start, end


class _Replaced(Layer):
    """A text in which every other piece was replaced, beginning with the second."""

    def __init__(self, before: list[bytes], after: list[bytes]) -> None:
        super().__init__(b"".join(after))
        self._lengths = list(map(len, before)), list(map(len, after))
        # The start of each piece and the end of the last, before and after; computed on demand.
        self._places: tuple[list[int], list[int]] | None = None

    def span(self, start: int, end: int) -> Span:
        """The original position of this part; a replaced piece counts as a whole."""
        return self._before(start)[0], self._before(end - 1)[1]

    def _before(self, position: int) -> Span:
        if self._places is None:
            before, after = self._lengths
            self._places = list(accumulate(before, initial=0)), list(accumulate(after, initial=0))
        first, then = self._places
        # If several pieces begin at this position, the last one counts: the others are empty.
        number = bisect_right(then, position) - 1
        if number % 2:
            return first[number], first[number + 1]
        place = first[number] + position - then[number]
        return place, place + 1


def layers(data: bytes) -> Iterator[Layer]:
    """The text as it is, and with each encoding undone that it may have."""
    yield Layer(data)
    if b"%" in data or b"+" in data:
        layer = _undone(data, _PERCENT, b"%", lambda escape: bytes.fromhex(escape[1:].decode()))
        layer.spaced = layer.data.translate(PLUS)
        yield layer
    if b"\\" in data:
        yield _undone(data, _BACKSLASH, b"\\", _unescaped)
    if _HIGH_BYTE.search(data):
        # In escaped bytes `\xe9` stands for a byte, in an escaped text for a character.
        yield _undone(data, _BACKSLASH, b"\\", _unescaped_characters)


def unspaced(data: bytes) -> Layer:
    """The text without its white space."""
    return _undone(data, _SPACE, b" ", lambda _: b"")


class _Known(dict[bytes, bytes]):
    """Caches what each escape stands for."""

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
) -> Layer:
    """The data with all escapes of the pattern undone; each escape begins with `mark`."""
    before = _split(data, pattern, mark)
    after = before.copy()
    after[1::2] = map(_Known(undo).__getitem__, before[1::2])
    return _Replaced(before, after)


def _split(data: bytes, pattern: re.Pattern[bytes], mark: bytes) -> list[bytes]:
    """The text between the escapes and the escapes, alternating; works in blocks."""
    pieces, position = [b""], 0
    while position < len(data):
        block = data[position : position + _BLOCK_BYTES]
        found = pattern.split(block)
        end = len(block)
        if position + end < len(data):
            # Near the block's end, an escape may turn out longer once all of it is visible.
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
