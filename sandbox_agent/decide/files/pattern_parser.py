"""Reads regular expressions into trees. What needs backtracking is refused. Pure."""

import re
from collections.abc import Callable
from typing import NamedTuple

MOST_CHARACTERS = 1024
_DEEPEST = 64
_MOST_REPEATS = 1000
_SPECIAL = frozenset(".^$*+?{}[]\\|()")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_COUNTS = re.compile(r"\{(\d{1,4})(?:(,)(\d{0,4}))?\}", re.ASCII)
_EDGES = {"^": "begin", "$": "end"}
_WORD_EDGES = {"b": "word edge", "B": "no word edge"}
Takes = Callable[[str], bool]


class PatternError(ValueError):
    """A pattern that can't be used."""


class Node(NamedTuple):
    """A part of a pattern: a kind and its parts."""

    kind: str
    parts: tuple["Node", ...] = ()
    takes: Takes | None = None
    place: str = ""
    least: int = 0
    most: int | None = None


class PatternReader:
    """Reads one pattern."""

    def __init__(self, text: str, ignore_case: bool) -> None:
        self._text = text
        self._ignore_case = ignore_case
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        """Raises: PatternError."""
        node = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("has a ) without its (; a literal one is \\)")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _alternatives(self) -> Node:
        found = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            found.append(self._sequence())
        return found[0] if len(found) == 1 else Node("any", tuple(found))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return Node("all", tuple(parts))

    def _repeated(self, node: Node) -> Node:
        times = 0
        while (character := self._peek()) and character in "*+?{":
            counts = _COUNTS.match(self._text, self._at)
            if character == "{" and counts is None:
                raise PatternError("has a { without counts, as {2,4}; a literal one is \\{")
            if times and character in "+?":
                # A lazy repetition finds the same lines. A possessive one needs backtracking.
                if character == "+" or times > 1:
                    raise PatternError("repeats a repetition; put it into a group")
                self._at += 1
                times += 1
                continue
            if times:
                raise PatternError("repeats a repetition; put it into a group")
            if node.kind == "place":
                raise PatternError("repeats something that has no characters")
            times += 1
            node = self._counted(node, character, counts)
        return node

    def _counted(self, node: Node, character: str, counts: re.Match[str] | None) -> Node:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1), "{": (0, 0)}[character]
        self._at += 1
        if character == "{" and counts is not None:
            self._at = counts.end()
            least = int(counts[1])
            most = least if counts[2] is None else (int(counts[3]) if counts[3] else None)
            if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
                raise PatternError(f"has counts that are not 0 to {_MOST_REPEATS} in their order")
        return Node("repeat", (node,), least=least, most=most)

    def _atom(self) -> Node:
        character = self._peek()
        self._at += 1
        if character == "(":
            return self._group()
        if character == "[":
            return Node("takes", takes=self._class())
        if character == ".":
            return Node("takes", takes=lambda _: True)
        if character in _EDGES:
            return Node("place", place=_EDGES[character])
        if character in "*+?{":
            raise PatternError(f"has a {character} with nothing before it")
        if character != "\\":
            return self._literal(character)
        escaped = self._escaped()
        if escaped in _WORD_EDGES:
            return Node("place", place=_WORD_EDGES[escaped])
        known = _named(escaped)
        return Node("takes", takes=known) if known else self._literal(_escape(escaped))

    def _group(self) -> Node:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise PatternError("has a group that begins with (?; only (?: is supported")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise PatternError(f"has groups more than {_DEEPEST} deep")
        node = self._alternatives()
        self._depth -= 1
        if self._peek() != ")":
            raise PatternError("has a ( without its ); a literal one is \\(")
        self._at += 1
        return node

    def _escaped(self) -> str:
        character = self._peek()
        if not character:
            raise PatternError("ends with a \\")
        self._at += 1
        return character

    def _literal(self, character: str) -> Node:
        return Node("takes", takes=self._cased(lambda other: other == character))

    def _cased(self, takes: Takes) -> Takes:
        if not self._ignore_case:
            return takes
        return lambda other: takes(other) or takes(other.lower()) or takes(other.upper())

    def _class(self) -> Takes:
        negated = self._peek() == "^"
        self._at += negated
        takes: list[Takes] = []
        ranges: list[tuple[str, str]] = []
        begin = self._at
        while (character := self._peek()) != "]" or self._at == begin:
            if not character:
                raise PatternError("has a [ without its ]; a literal one is \\[")
            self._at += 1
            if character == "\\":
                escaped = self._escaped()
                if (known := _named(escaped)) is not None:
                    takes.append(known)
                    continue
                character = "\b" if escaped == "b" else _escape(escaped)
            ranges.append((character, self._last(character)))
        self._at += 1

        def has(other: str) -> bool:
            return any(low <= other <= high for low, high in ranges) or any(
                each(other) for each in takes
            )

        cased = self._cased(has)
        return (lambda other: not cased(other)) if negated else cased

    def _last(self, first: str) -> str:
        """The end of a range that begins with this character, or the character itself."""
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return first
        self._at += 1
        last = self._peek()
        self._at += 1
        if last == "\\":
            last = _escape(self._escaped())
        if last < first:
            raise PatternError(f"has a range in the wrong order: {first}-{last}")
        return last


def is_word(character: str) -> bool:
    """Whether it belongs to words."""
    return character == "_" or character.isalnum()


def _named(letter: str) -> Takes | None:
    """The class that an escaped letter names."""
    classes: dict[str, Takes] = {"d": str.isdecimal, "w": is_word, "s": str.isspace}
    found = classes.get(letter.lower())
    if found is None or letter.islower():
        return found
    opposite = found
    return lambda other: not opposite(other)


def _escape(character: str) -> str:
    """The literal of an escaped character. Raises: PatternError."""
    if character in _CONTROLS:
        return _CONTROLS[character]
    if character.isascii() and character.isalnum():
        raise PatternError(f"has \\{character}, which is not supported")
    return character


def literal(text: str) -> str:
    """The pattern that matches exactly this text."""
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in text)
