"""Reads the operator's TOML files, and finds the line of a field that is wrong.

The parser reports lines for broken syntax only.
"""

import re
import tomllib
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit
from tomlkit.items import AoT, Array

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.operator_files import MOST_BYTES, read_regular

Field = tuple[str | int, ...]

_SYNTAX = re.compile(r" \(at line (\d+), column \d+\)$")


class Document(NamedTuple):
    """A file as it was read: its text, and the values in it."""

    text: str
    values: dict[str, Any]


def read_document(path: Path) -> Document:
    """Reads a TOML file. Raises: ConfigError that names the file, and the line if it can."""
    try:
        data = read_regular(path)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path}: has more than {MOST_BYTES} bytes")
        text = data.decode()
        return Document(text, tomllib.loads(text))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: must be UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        line, message = syntax_error(text, error)
        raise ConfigError(f"{path}:{line}: {message}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None


def line_of(text: str, path: Field) -> int:
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


def _entry(document: Any, path: Field) -> int:
    """The length of the part of the path that leads to an entry of an array of tables; or 0."""
    value = document
    for length, part in enumerate(path, 1):
        try:
            holder, value = value, value[part]
        except (LookupError, TypeError):
            return 0
        if isinstance(holder, AoT):
            return length
    return 0


def _line_in_entry(text: str, entry: Field, rest: Field) -> int:
    """The line, found in the text itself: entries may have other tables between them."""
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
    message = str(error)
    place = _SYNTAX.search(message)
    if place is None:  # at the end of the document
        return text.count("\n") + 1, message
    return int(place[1]), message[: place.start()]
