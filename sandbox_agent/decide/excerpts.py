"""Shortens long values for the record: the beginning, plus the size and digest of the whole. Pure.

The control plane and the agent both use this, always after secrets were removed: with a digest of a
secret, anyone could check guesses.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sandbox_agent.decide.digest import sha256

# The most UTF-8 bytes that are kept of one text, and of all words of a list together.
LONGEST_TEXT = 1024
LONGEST_WORDS = 4096
MOST_WORDS = 64
# The limits for `paths`, which may be those of a whole archive. The bytes are those of JSON,
# where a character may take six.
LONGEST_PATHS = 32 * 1024
MOST_PATHS = 1000
# The most bytes of any other value, in its JSON form.
_LONGEST_VALUE = 4096
# Room for the note that says how much was cut.
_MARKER_BYTES = 40
# Made once: each call would make its own union.
_LONG = (str, list, tuple, dict)


def excerpts(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members, with the values that are too long shortened.

    A shortened text `name` comes with `name_bytes` and `name_sha256`, which describe the whole text
    in UTF-8. A shortened list of words has `name_words` as well; its whole is the words with a NUL
    after each. Any other value that is too long becomes the beginning of its JSON text.
    """
    cut: dict[str, Any] = {}
    for name, value in members.items():
        if isinstance(value, str) and text(value) is value:
            cut[text(name)] = value
        elif isinstance(value, _LONG):
            cut |= _member(text(name), value)
        else:
            cut[text(name)] = value
    return cut


def text(value: str, most: int = LONGEST_TEXT) -> str:
    """The text, or its beginning and a note of how much was cut, in at most `most` bytes."""
    if len(value) <= most and value.isascii():
        return value
    data = _encoded(value)
    if len(data) <= most:
        return value
    kept = data[: most - _MARKER_BYTES].decode("utf-8", "ignore")
    return f"{kept}[{len(data) - len(kept.encode())} more bytes]"


def json_size(value: str) -> int:
    """The bytes that a text takes in the JSON list of a frame."""
    return len(_encoded(json.dumps(value, ensure_ascii=False))) + len(",")


def _member(name: str, value: str | list[Any] | tuple[Any, ...] | dict[Any, Any]) -> dict[str, Any]:
    """The members of a text that is too long, or of any list or object."""
    if isinstance(value, str):
        return {name: text(value), **_whole(name, _encoded(value))}
    if not isinstance(value, dict) and all(isinstance(word, str) for word in value):
        return _words(name, value)
    return _value(name, value)


def _words(name: str, words: Sequence[str]) -> dict[str, Any]:
    if name == "paths":
        kept = list(_kept(words, MOST_PATHS, LONGEST_PATHS, json_size))
    else:
        kept = list(_kept(words, MOST_WORDS, LONGEST_WORDS, lambda word: len(_encoded(word))))
    if kept == list(words):
        return {name: kept}
    whole = b"".join(_encoded(word) + b"\0" for word in words)
    return {name: kept, f"{name}_words": len(words), **_whole(name, whole)}


def _kept(words: Sequence[str], most: int, left: int, size: Callable[[str], int]) -> Iterator[str]:
    for word in words[:most]:
        kept = text(word)
        left -= size(kept)
        if left < 0:
            return
        yield kept


def _value(name: str, value: Any) -> dict[str, Any]:
    try:
        whole = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return {name: value}  # not a JSON value: the caller that records it reports the error
    data = _encoded(whole)
    if len(data) <= _LONGEST_VALUE:
        return {name: value}
    return {name: text(whole), **_whole(name, data)}


def _whole(name: str, data: bytes) -> dict[str, Any]:
    return {f"{name}_bytes": len(data), f"{name}_sha256": sha256(data).hexdigest()}


def _encoded(value: str) -> bytes:
    return value.encode("utf-8", "backslashreplace")
