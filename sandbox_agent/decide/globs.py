"""Globs of workspace paths, with minimatch's rules without dotfiles. Pure functions.

`*` is any part of a segment, `?` one character, `[a-z]` and `[!a]` one character of a class,
`{a,b}` one of several texts, and `**` as a whole segment any number of segments. `\\` makes the
next character literal. Only a literal dot matches a dot at the beginning of a segment. Other parts
of minimatch's language, such as a leading `!`, are refused.

All patterns of a list are one automaton whose states are bits of a number: matching takes one step
for each character of the path, whatever the patterns are.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

MOST_PATTERNS = 256
MOST_CHARACTERS = 1024
# In one list: the characters of all patterns after the expansion of braces, and the classes.
MOST_EXPANDED = 16_384
MOST_CLASSES = 32

_EXTENDED = re.compile(r"(?<!\\)[@!+?*]\(")


class GlobError(ValueError):
    """A pattern that can't be used; `index` is its place, or None if the whole list can't be."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class _Class(NamedTuple):
    """One character of these ranges, or of none of them; never a slash."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool

    def has(self, character: str) -> bool:
        inside = any(first <= character <= last for first, last in self.ranges)
        return inside is not self.negated


class _Wild(NamedTuple):
    """`?`, `*`, `**` at the end of a pattern, or `**/`."""

    name: str


_ANY, _STAR, _ALL, _DIRECTORIES = _Wild("?"), _Wild("*"), _Wild("**"), _Wild("**/")
_Token = str | _Class | _Wild


class Globs:
    """A list of patterns. Equal lists are equal."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raises: GlobError."""
        self.patterns = tuple(patterns)
        # Bits of states: before a token, or after the last one.
        self._literals: defaultdict[str, list[int]] = defaultdict(list)
        self._classes: defaultdict[_Class, int] = defaultdict(int)
        self._any = self._stars = self._all = self._directories = 0
        self._start = self._end = 0
        if len(self.patterns) > MOST_PATTERNS:
            raise GlobError(f"must have at most {MOST_PATTERNS} patterns")
        bit = expanded = 0
        for index, pattern in enumerate(self.patterns):
            try:
                for text in _expanded(pattern, MOST_EXPANDED - expanded):
                    expanded += len(text)
                    bit = self._add(_tokens(text), bit)
            except GlobError as error:
                raise GlobError(str(error), index) from None

    def _add(self, tokens: Sequence[_Token], bit: int) -> int:
        """Adds the states of one pattern, from that bit on. Returns the next free bit."""
        self._start |= 1 << bit
        for place, token in enumerate(tokens, bit):
            state = 1 << place
            if isinstance(token, str):
                self._literals[token].append(place)
            elif isinstance(token, _Class):
                self._classes[token] |= state
            elif token is _ANY:
                self._any |= state
            elif token is _STAR:
                self._stars |= state
            elif token is _ALL:
                self._all |= state
            else:
                self._directories |= state
        if len(self._classes) > MOST_CLASSES:
            raise GlobError(f"the list may have at most {MOST_CLASSES} different classes")
        self._end |= 1 << (bit + len(tokens))
        return bit + len(tokens) + 1

    def match(self, ref: str) -> bool:
        """Whether one of the patterns matches this path, relative to the workspace.

        A path that is absolute, or has an empty segment, `.`, `..` or NUL, matches nothing.
        """
        return well_formed(ref) and self._passed_stars(self._run(ref)) & self._end != 0

    def leads(self, directory: str) -> bool:
        """Whether a path below this directory may match; `.` is the workspace."""
        if directory == ".":
            return self._start != 0
        return well_formed(directory) and self._run(directory + "/") & ~self._end != 0

    def _run(self, text: str) -> int:
        """The states after this text; a star that may be empty is not passed yet."""
        states, at_start = self._start, True
        taking: dict[str, int] = {}
        for character in text:
            if not states:
                break
            if at_start:
                states |= (states & self._directories) << 1
            if character not in taking:
                taking[character] = self._taking(character)
            if at_start and character == ".":
                # Only a literal matches this dot, even if an empty star is before it.
                states = (states & self._bits(".")) << 1
            else:
                states = self._passed_stars(states)
                staying = self._all | self._directories
                if character != "/":
                    staying |= self._stars
                states = ((states & taking[character]) << 1) | (states & staying)
            at_start = character == "/"
        return states

    def _passed_stars(self, states: int) -> int:
        return states | (states & (self._stars | self._all)) << 1

    def _taking(self, character: str) -> int:
        """The states whose token matches exactly this character."""
        taking = self._bits(character)
        if character != "/":
            taking |= self._any
            for each, bits in self._classes.items():
                if each.has(character):
                    taking |= bits
        return taking

    def _bits(self, character: str) -> int:
        """The states whose token is this literal."""
        return sum(1 << place for place in self._literals.get(character, ()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Globs) and self.patterns == other.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def __repr__(self) -> str:
        return f"Globs({list(self.patterns)!r})"


def well_formed(ref: str) -> bool:
    """Whether this is a relative path without NUL and without empty, `.` and `..` segments."""
    return "\0" not in ref and not {"", ".", ".."} & set(ref.split("/"))


def _expanded(pattern: str, most: int) -> Iterator[str]:
    """The patterns without braces. Raises: GlobError, also above `most` characters in all."""
    if not 1 <= len(pattern) <= MOST_CHARACTERS:
        raise GlobError(f"must have 1 to {MOST_CHARACTERS} characters")
    waiting, size = [pattern], len(pattern)
    while waiting:
        if size > most:
            raise GlobError(f"the list has more than {MOST_EXPANDED} characters, braces expanded")
        text = waiting.pop()
        braces = _innermost_braces(text)
        if braces is None:
            yield text
            continue
        before, options, after = braces
        if len(options) < 2:
            raise GlobError("braces need a comma, as {a,b}; a literal brace is \\{")
        found = [before + option + after for option in reversed(options)]
        # Each has one more, because an option may be empty.
        size += sum(len(each) + 1 for each in found) - len(text)
        waiting += found


def _innermost_braces(text: str) -> tuple[str, list[str], str] | None:
    """The first innermost braces: the text before them, their options, and the text after them."""
    opened = place = 0
    commas: list[int] | None = None
    while place < len(text):
        character = text[place]
        if character == "\\":
            place += 1
        elif character == "{":
            opened, commas = place, []
        elif character == "," and commas is not None:
            commas.append(place)
        elif character == "}" and commas is not None:
            ends = [opened, *commas, place]
            options = [text[first + 1 : last] for first, last in pairwise(ends)]
            return text[:opened], options, text[place + 1 :]
        place += 1
    return None


def _tokens(text: str) -> list[_Token]:
    """The tokens of a pattern without braces. Raises: GlobError."""
    if text.startswith(("!", "#")):
        raise GlobError(f"must not begin with {text[0]}; a literal one is \\{text[0]}")
    if _EXTENDED.search(text):
        raise GlobError("extended globs such as +(a|b) are not supported; a literal one is \\(")
    if not well_formed(text):
        raise GlobError("must be relative, without NUL, empty segments, `.` and `..`")
    tokens: list[_Token] = []
    segments = _segments(text)
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == [_STAR, _STAR]:
            if not tokens or tokens[-1] is not _DIRECTORIES or last:
                tokens.append(_ALL if last else _DIRECTORIES)
            continue
        for token in segment:
            if token is not _STAR or not tokens or tokens[-1] is not _STAR:
                tokens.append(token)
        if not last:
            tokens.append("/")
    return tokens


def _segments(text: str) -> list[list[_Token]]:
    """The tokens of each segment; every star is one."""
    segments: list[list[_Token]] = [[]]
    place = 0
    while place < len(text):
        character = text[place]
        place += 1
        if character == "/":
            segments.append([])
        elif character == "*":
            segments[-1].append(_STAR)
        elif character == "?":
            segments[-1].append(_ANY)
        elif character == "[":
            found, place = _class(text, place)
            segments[-1].append(found)
        elif character in "{}":
            raise GlobError(f"has a {character} without the other one; a literal is \\{character}")
        elif character == "\\":
            literal, place = _escaped(text, place)
            segments[-1].append(literal)
        else:
            segments[-1].append(character)
    return segments


def _class(text: str, place: int) -> tuple[_Class, int]:
    """The class whose `[` is before that place, and the place after it. Raises: GlobError."""
    negated = text[place : place + 1] in ("!", "^")
    place += negated
    ranges: list[tuple[str, str]] = []
    while text[place : place + 1] != "]":
        first, place = _member(text, place)
        last = first
        if text[place : place + 1] == "-" and text[place + 1 : place + 2] not in ("]", ""):
            last, place = _member(text, place + 1)
        if last < first:
            raise GlobError(f"has a range in the wrong order: {first}-{last}")
        ranges.append((first, last))
    if not ranges:
        raise GlobError("has an empty class; a literal bracket is \\[")
    return _Class(tuple(sorted(set(ranges))), negated), place + 1


def _member(text: str, place: int) -> tuple[str, int]:
    character = text[place : place + 1]
    if character in ("", "/"):
        raise GlobError("has a [ without its ]; a literal one is \\[")
    if character == "[":
        raise GlobError("has a [ in a class; a literal one is \\[")
    return _escaped(text, place + 1) if character == "\\" else (character, place + 1)


def _escaped(text: str, place: int) -> tuple[str, int]:
    character = text[place : place + 1]
    if character in ("", "/"):
        raise GlobError("has a \\ without a character after it")
    return character, place + 1
