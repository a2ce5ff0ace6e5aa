"""Reads JSON that no two parsers can read differently, at a cost that grows with its size.

Everything here can run in a thread: no step holds the interpreter for long, because the values are
counted before anything is built from them.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

MAX_DEPTH = 32
# More than any request needs: a context pack of 10,000 entries has 50,000. Reading so many takes
# some tens of milliseconds, in which no other thread runs either.
MOST_VALUES = 128 * 1024
# The time to read a number grows with the square of its digits. Programs' values have up to 1,234.
_MOST_DIGITS = 1300
_PIECE = 64 * 1024
_MOST_SHOWN = 64


class JsonError(ValueError):
    """The message says what is wrong with the subject; `field` names the place in it."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


def read(data: bytes, subject: str) -> Any:
    """The value that the JSON text has; `subject` names it in errors.

    Repeated members, NaN and Infinity, NUL and lone surrogates in strings, deep nesting, very long
    numbers, and too many values are refused. Raises: JsonError.
    """
    value = parse(data, subject)
    # Only escapes can produce characters that UTF-8 does not have.
    _check(value, subject, escaped=b"\\u" in data)
    return value


def parse(data: bytes, subject: str, most_values: int = MOST_VALUES) -> Any:
    """Like `read`, but for any texts, and any nesting that the interpreter can read."""
    if count(data, most_values) > most_values:
        raise JsonError(f"{subject} has more than {most_values} values")
    try:
        return json.loads(
            data.decode(),
            parse_constant=_no_constant,
            parse_int=_integer,
            object_pairs_hook=_unique_members,
        )
    except UnicodeDecodeError:
        raise JsonError(f"{subject} must be UTF-8") from None
    except RecursionError:
        raise JsonError(_too_deep(subject)) from None
    except ValueError as error:
        raise JsonError(f"{subject} must be JSON: {shortened(str(error))}") from None


def check(value: Any, subject: str) -> None:
    """Raises: JsonError for what `read` refuses in a value that is parsed already."""
    _check(value, subject, escaped=True)


def shortened(text: str) -> str:
    """A client's text, for a message."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def count(data: bytes, most: int) -> int:
    """An upper bound of the values in the text, found without reading them; stops above `most`."""
    found, quotes, begun, inside = 1, 0, b"", False
    for at in range(0, len(data), _PIECE):
        piece = (begun + data[at : at + _PIECE]).replace(b"\\\\", b"")
        # An escape may be cut in two.
        begun = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.removesuffix(begun).replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[inside::2])
        found += sum(outside.count(mark) for mark in (b",", b"[", b"{"))
        quotes += len(parts) - 1
        # In JSON, a value has at most a name and a text, so at most four quotes.
        if max(found, quotes // 4) > most:
            return most + 1
        inside ^= len(parts) % 2 == 0
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has more than {_MOST_DIGITS} digits")
    return int(digits)


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                printable = shortened(name).encode("ascii", "backslashreplace").decode()
                raise ValueError(f"{printable} appears twice")
            seen.add(name)
    return members


# A container's place: the place of its own container, and its name or number in that.
_Place = tuple[Any, ...]


def _check(value: Any, subject: str, *, escaped: bool) -> None:
    """Raises: JsonError for deep nesting and, where texts have escapes, for invalid texts."""
    root: _Place = ()
    if escaped and isinstance(value, str):
        _check_text(value, subject)
    waiting = [(value, root, 0)] if isinstance(value, dict | list) else []
    while waiting:
        container, place, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise JsonError(_too_deep(subject))
        members: Iterable[tuple[str | int, Any]] = enumerate(container)
        if isinstance(container, dict):
            members = container.items()
        for key, item in members:
            if escaped and isinstance(key, str):
                _check_text(key, f"a name in {_name(place) or subject}")
            if isinstance(item, dict | list):
                waiting.append((item, (place, key), depth + 1))
            elif escaped and isinstance(item, str):
                _check_text(item, _name((place, key)))


def _check_text(text: str, name: str) -> None:
    if "\0" in text:
        raise JsonError(f"{name} must not contain NUL", field=name)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise JsonError(f"{name} must not contain lone surrogates", field=name) from None


def _name(place: _Place) -> str:
    return shortened(".".join(reversed(list(_steps(place)))))


def _steps(place: _Place) -> Iterator[str]:
    while place:
        place, key = place
        yield shortened(str(key))


def _too_deep(subject: str) -> str:
    return f"{subject} is nested more than {MAX_DEPTH} deep"
