"""Long texts, decoded and written as JSON in pieces: a thread that works on one whole stops all.

Each call is made by C code that lets no other thread run, and errors in a text take it up to a
microsecond for each byte.
"""

import codecs
import json
import sys
from collections.abc import Mapping
from typing import Any

# Bytes or characters of a piece.
PIECE = 8 * 1024
# About so long are an item of a list, and anything else.
_ITEM, _NUMBER = 256, 16
# Without a mark, the order of the bytes is the machine's; such decoders demand the mark.
_OF_MACHINE = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}


def decoded(data: bytes, encoding: str, errors: str) -> str:
    """The text, as `bytes.decode` gives it. Raises: UnicodeError."""
    if encoding in _OF_MACHINE and not data.startswith(_OF_MACHINE[encoding]):
        encoding += "-le" if sys.byteorder == "little" else "-be"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    pieces = [decoder.decode(data[at : at + PIECE]) for at in range(0, len(data), PIECE)]
    return "".join([*pieces, decoder.decode(b"", final=True)])


def json_text(text: str) -> str:
    """The text as JSON, as `json.dumps` writes it."""
    pieces = [json.dumps(text[at : at + PIECE])[1:-1] for at in range(0, len(text), PIECE)]
    return f'"{"".join(pieces)}"'


def object_text(members: Mapping[str, Any]) -> str:
    """An object as compact JSON: its members one by one, its lists item by item."""
    pieces = [f"{_compact(name)}:{value_text(value)}" for name, value in members.items()]
    return f"{{{','.join(pieces)}}}"


def value_text(value: Any) -> str:
    """A value as compact JSON, made in pieces."""
    match value:
        case str() if len(value) > PIECE:
            return json_text(value)
        case dict():
            return object_text(value)
        case list():
            return f"[{','.join(map(_compact, value))}]"
    return _compact(value)


def size_of(members: Mapping[str, Any]) -> int:
    """About how long its JSON is."""
    return sum(_size(value) for value in members.values())


def _size(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            return size_of(value)
        case list():
            return len(value) * _ITEM
    return _NUMBER


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
