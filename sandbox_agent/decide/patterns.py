"""Regular expressions whose search takes time linear in the text, whatever the pattern is. Pure.

They have literals, `.`, classes, `\\d \\w \\s` and their opposites, groups, `|`, `* + ?`, `{m,n}`,
`^`, `$`, `\\b` and `\\B`. What needs backtracking, as back references and lookaround, is refused.
The pattern becomes an automaton whose sets of states are made as they are met, and kept.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

MOST_CHARACTERS = 1024
# Of the automaton, with repetitions written out.
_MOST_STATES = 1024
_DEEPEST = 64
_MOST_REPEATS = 1000
# Kept steps of the automaton; beyond them, they are made anew.
_MOST_KEPT = 50_000
_SPECIAL = frozenset(".^$*+?{}[]\\|()")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_COUNTS = re.compile(r"\{(\d{1,4})(?:(,)(\d{0,4}))?\}", re.ASCII)
_EDGES = {"^": "begin", "$": "end"}
_WORD_EDGES = {"b": "word edge", "B": "no word edge"}

Takes = Callable[[str], bool]


class PatternError(ValueError):
    """A pattern that can't be used."""


class _State(NamedTuple):
    """A state: it takes a character, requires a place, or leads on without either."""

    takes: Takes | None
    place: str | None
    next: tuple[int, ...]


# A parsed part of a pattern: a kind and its parts.
class _Node(NamedTuple):
    kind: str
    parts: tuple["_Node", ...] = ()
    takes: Takes | None = None
    place: str = ""
    least: int = 0
    most: int | None = None


class Pattern:
    """A compiled pattern. Raises: PatternError from the constructor."""

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        if not 1 <= len(text) <= MOST_CHARACTERS:
            raise PatternError(f"must have 1 to {MOST_CHARACTERS} characters")
        self._states: list[_State] = [_State(None, None, ())]  # the first one accepts
        self._start = self._build(_Parser(text, ignore_case).parse(), 0)
        self._kept: dict[tuple[frozenset[int], bool], dict[str, tuple[frozenset[int], bool]]] = {}
        self._size = 0

    def found_in(self, line: str) -> bool:
        """Whether something in this line matches."""
        states: frozenset[int] = frozenset((self._start,))
        # Whether the character before is one of a word; at the beginning, `first` counts, too.
        word = False
        first = True
        for character in line:
            following = None if first else self._kept.get((states, word), {}).get(character)
            if following is None:
                following = self._step(states, word, character, first)
            states, accepted = following
            if accepted:
                return True
            word = _is_word(character)
            first = False
        return 0 in self._closed(states, word, None, first)

    def _step(
        self, states: frozenset[int], word: bool, character: str, first: bool
    ) -> tuple[frozenset[int], bool]:
        closed = self._closed(states, word, character, first)
        if 0 in closed:
            return states, True
        reached = {self._start}
        for number in closed:
            state = self._states[number]
            if state.takes is not None and state.takes(character):
                reached.update(state.next)
        following = frozenset(reached), False
        if not first:
            self._size += 1
            if self._size > _MOST_KEPT:
                self._kept.clear()
                self._size = 1
            self._kept.setdefault((states, word), {})[character] = following
        return following

    def _closed(
        self, states: frozenset[int], word: bool, character: str | None, first: bool
    ) -> set[int]:
        """All states that are reached between two characters; None is the end of the line."""
        edge = word != (character is not None and _is_word(character))
        holds = {
            "begin": first,
            "end": character is None,
            "word edge": edge,
            "no word edge": not edge,
        }
        closed = set(states)
        waiting = list(states)
        while waiting:
            state = self._states[waiting.pop()]
            if state.takes is None and (state.place is None or holds[state.place]):
                new = set(state.next) - closed
                closed |= new
                waiting += new
        return closed

    def _add(self, *state: object) -> int:
        if len(self._states) >= _MOST_STATES:
            raise PatternError("needs too many states: repeat less")
        self._states.append(_State(*state))  # type: ignore[arg-type]
        return len(self._states) - 1

    def _build(self, node: _Node, after: int) -> int:
        """Adds the states of a part that `after` follows; returns its first state."""
        if node.kind == "takes":
            return self._add(node.takes, None, (after,))
        if node.kind == "place":
            return self._add(None, node.place, (after,))
        if node.kind == "all":
            for part in reversed(node.parts):
                after = self._build(part, after)
            return after
        if node.kind == "any":
            return self._add(None, None, tuple(self._build(part, after) for part in node.parts))
        (part,) = node.parts
        if node.most is None:
            loop = self._add(None, None, ())
            self._states[loop] = _State(None, None, (self._build(part, loop), after))
            after = loop
        else:
            end = after
            for _ in range(node.most - node.least):
                after = self._add(None, None, (self._build(part, after), end))
        for _ in range(node.least):
            after = self._build(part, after)
        return after


class _Parser:
    """Reads a pattern."""

    def __init__(self, text: str, ignore_case: bool) -> None:
        self._text = text
        self._ignore_case = ignore_case
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        """Raises: PatternError."""
        node = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("has a ) without its (; a literal one is \\)")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _alternatives(self) -> _Node:
        found = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            found.append(self._sequence())
        return found[0] if len(found) == 1 else _Node("any", tuple(found))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _Node("all", tuple(parts))

    def _repeated(self, node: _Node) -> _Node:
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

    def _counted(self, node: _Node, character: str, counts: re.Match[str] | None) -> _Node:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1), "{": (0, 0)}[character]
        self._at += 1
        if character == "{" and counts is not None:
            self._at = counts.end()
            least = int(counts[1])
            most = least if counts[2] is None else (int(counts[3]) if counts[3] else None)
            if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
                raise PatternError(f"has counts that are not 0 to {_MOST_REPEATS} in their order")
        return _Node("repeat", (node,), least=least, most=most)

    def _atom(self) -> _Node:
        character = self._peek()
        self._at += 1
        if character == "(":
            return self._group()
        if character == "[":
            return _Node("takes", takes=self._class())
        if character == ".":
            return _Node("takes", takes=lambda _: True)
        if character in _EDGES:
            return _Node("place", place=_EDGES[character])
        if character in "*+?{":
            raise PatternError(f"has a {character} with nothing before it")
        if character != "\\":
            return self._literal(character)
        escaped = self._escaped()
        if escaped in _WORD_EDGES:
            return _Node("place", place=_WORD_EDGES[escaped])
        known = _named(escaped)
        return _Node("takes", takes=known) if known else self._literal(_escape(escaped))

    def _group(self) -> _Node:
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

    def _literal(self, character: str) -> _Node:
        return _Node("takes", takes=self._cased(lambda other: other == character))

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


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


def _named(letter: str) -> Takes | None:
    """The class that an escaped letter names."""
    classes: dict[str, Takes] = {"d": str.isdecimal, "w": _is_word, "s": str.isspace}
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
