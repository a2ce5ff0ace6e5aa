"""Where in a TOML file a field stands: parsers tell this of broken syntax only."""

import re
import tomllib
from itertools import zip_longest
from typing import Any

import tomlkit
from tomlkit.items import Array

Path = tuple[str | int, ...]

_SYNTAX = re.compile(r" \(at line (\d+), column \d+\)$")


def line_of(text: str, path: Path) -> int:
    """The line, from 1, of a table, key or item of a valid document.

    What is not in the document is where it is missing: at the table that it belongs to.
    """
    document = tomlkit.parse(text)
    holder: Any = None
    value: Any = document
    name: str | int = ""
    for part in path:
        try:
            holder, name, value = value, part, value[part]
        except (LookupError, TypeError):
            break
    if holder is None:
        return 1
    # It begins where the text differs without it. Items of an array may be alike.
    if isinstance(holder, Array) and isinstance(name, int):
        holder[name] = "\0" if holder[name] != "\0" else ""
    else:
        del holder[name]
    lines = zip_longest(text.split("\n"), document.as_string().split("\n"))
    return next(number for number, (before, after) in enumerate(lines, 1) if before != after)


def syntax_error(text: str, error: tomllib.TOMLDecodeError) -> tuple[int, str]:
    """The line of a syntax error, and what is wrong there."""
    said = str(error)
    place = _SYNTAX.search(said)
    if place is None:  # at the end of the document
        return text.count("\n") + 1, said
    return int(place[1]), said[: place.start()]
