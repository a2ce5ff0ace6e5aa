"""Where in a TOML file a field stands. The standard library's parser tells only of broken syntax.

The text is one that parser has taken already, so this reads over it: it finds tables, keys and
items of arrays, and skips what they hold. Pure.
"""

import re
import tomllib

Path = tuple[str | int, ...]

_SYNTAX = re.compile(r" \(at line (\d+), column \d+\)$")
_BETWEEN = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_DOT = re.compile(r"[ \t]*\.[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
# Three quotes end a text of several lines, and the last of it may be two quotes more.
_TEXT = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")|'
    r"'''.*?'{3,5}(?!')|"
    r'"(?:\\.|[^"\\])*"|'
    r"'[^']*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}#\n]+")


def line_of(text: str, path: Path) -> int:
    """The line, from 1, of a table, key or item of a valid document.

    What is not in the document is where it is missing: at the table that it belongs to.
    """
    found = _Reader(text).read()
    while path not in found:
        path = path[:-1]
    return found[path]


def syntax_error(text: str, error: tomllib.TOMLDecodeError) -> tuple[int, str]:
    """The line of a syntax error, and what is wrong there."""
    said = str(error)
    place = _SYNTAX.search(said)
    if place is None:  # at the end of the document
        return text.count("\n") + 1, said
    return int(place[1]), said[: place.start()]


class _Reader:
    """Reads a document from its begin to its end, and notes where things begin."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._found: dict[Path, int] = {(): 1}

    def read(self) -> dict[Path, int]:
        table: Path = ()
        self._skip(_BETWEEN)
        while self._at < len(self._text):
            if self._next("["):
                double = self._next("[")
                table = self._key(())
                self._at += 2 if double else 1
            else:
                self._pair(table)
            self._skip(_BETWEEN)
        return self._found

    def _pair(self, table: Path) -> None:
        path = self._key(table)
        self._skip(_BETWEEN)
        self._next("=")
        self._skip(_BETWEEN)
        self._value(path)

    def _key(self, table: Path) -> Path:
        """A dotted key; what comes before its last part are tables."""
        path = table
        while True:
            self._skip(_BETWEEN)
            start = self._at
            quoted = self._skip(_TEXT)
            if not quoted and not self._skip(_BARE):
                raise ValueError("not a valid document")
            part = self._text[start : self._at]
            path = (*path, tomllib.loads(f"key = {part}")["key"] if quoted else part)
            self._note(path, start)
            if not self._skip(_DOT):
                self._skip(_BETWEEN)
                return path

    def _value(self, path: Path) -> None:
        if self._next("["):
            self._items(path)
        elif self._next("{"):
            self._members(path)
        elif not self._skip(_TEXT):
            self._skip(_PLAIN)

    def _items(self, path: Path) -> None:
        index = 0
        self._skip(_BETWEEN)
        while not self._next("]"):
            self._note((*path, index), self._at)
            self._value((*path, index))
            self._after_one()
            index += 1

    def _members(self, path: Path) -> None:
        self._skip(_BETWEEN)
        while not self._next("}"):
            self._pair(path)
            self._after_one()

    def _after_one(self) -> None:
        self._skip(_BETWEEN)
        self._next(",")
        self._skip(_BETWEEN)

    def _next(self, sign: str) -> bool:
        """Goes past that sign where it is next."""
        if self._at >= len(self._text):
            raise ValueError("not a valid document")
        found = self._text[self._at] == sign
        self._at += found
        return found

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        """Goes past what matches; whether anything did."""
        match = pattern.match(self._text, self._at)
        if match is None or match.end() == self._at:
            return False
        self._at = match.end()
        return True

    def _note(self, path: Path, at: int) -> None:
        self._line += self._text.count("\n", self._counted, at)
        self._counted = at
        self._found.setdefault(path, self._line)
