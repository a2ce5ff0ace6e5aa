"""The line of a field in a TOML file; parsers report lines for broken syntax only."""

import re
import tomllib
from itertools import zip_longest
from typing import Any

import tomlkit
from tomlkit.items import AoT, Array

Path = tuple[str | int, ...]

_SYNTAX = re.compile(r" \(at line (\d+), column \d+\)$")


def line_of(text: str, path: Path) -> int:
    """The line, from 1, of a table, key or item of a valid document.

    For a missing field, it is the line of the table to which the field belongs.
    """
    document = tomlkit.parse(text)
    entry = _entry(document, path)
    if entry:
        return _line_in_entry(text, path[:entry], path[entry:])
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
    # The item begins where the text without it differs. Items of an array may be equal.
    if isinstance(holder, Array) and isinstance(name, int):
        holder[name] = "\0" if holder[name] != "\0" else ""
    else:
        del holder[name]
    lines = zip_longest(text.split("\n"), document.as_string().split("\n"))
    return next(number for number, (before, after) in enumerate(lines, 1) if before != after)


def _entry(document: Any, path: Path) -> int:
    """How much of the path leads to an entry of an array of tables; 0: nothing of it does."""
    value = document
    for length, part in enumerate(path, 1):
        try:
            holder, value = value, value[part]
        except (LookupError, TypeError):
            return 0
        if isinstance(holder, AoT):
            return length
    return 0


def _line_in_entry(text: str, entry: Path, rest: Path) -> int:
    """Searched in the text, because entries may have other tables between them."""
    *names, index = entry
    header = re.compile(
        r"\s*\[\[\s*" + r"\s*\.\s*".join(map(re.escape, map(str, names))) + r"\s*\]\]"
    )
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines, 1) if header.match(line)]
    start = starts[int(index)]
    following = (at for at in range(start, len(lines)) if lines[at].startswith("["))
    own = "\n".join([*lines[start : next(following, len(lines))], ""])
    return start + line_of(own, rest) if rest and rest[0] in tomlkit.parse(own) else start


def syntax_error(text: str, error: tomllib.TOMLDecodeError) -> tuple[int, str]:
    """The line of a syntax error and its description."""
    said = str(error)
    place = _SYNTAX.search(said)
    if place is None:  # at the end of the document
        return text.count("\n") + 1, said
    return int(place[1]), said[: place.start()]
