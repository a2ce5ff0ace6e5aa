"""Reads a program's text into forms that know their places."""

import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

from orchestrator.programs.turns.lisp.data import EMPTY, Cons, Datum
from orchestrator.programs.turns.lisp.errors import LispError, Place, Problem
from orchestrator.programs.turns.lisp.limits import LispLimits
from orchestrator.programs.turns.lisp.made_outcomes import outcome_of
from orchestrator.programs.turns.lisp.texts import QUOTES, atom, unescaped
from orchestrator.programs.turns.outcome import Symbol
from orchestrator.programs.turns.programs import Breath

_OUTCOME = "#outcome("
# Others may run after so many tokens.
_AT_ONCE = 1000
_BETWEEN = ("space", "comment")
_TOKEN = re.compile(
    r"""(?P<space>\s+|;[^\n]*)
    | (?P<comment>\#\|)
    | "(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)"
    | \|(?P<symbol>[^|\\]*+(?:\\.[^|\\]*+)*+)\|
    | (?P<mark>\#outcome\(|,@|[()'`,])
    | (?P<atom>[^\s()'`,;"|]+)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"\#\||\|\#")


class _Open(NamedTuple):
    """A list, an outcome or a quote that has begun."""

    mark: str
    place: Place
    items: list[tuple[Datum, Place]]


class _Token(NamedTuple):
    kind: str
    text: str
    place: Place


def read(text: str, limits: LispLimits) -> Generator[Breath, object, Cons]:
    """All forms of a text, each with its place. Raises: LispError."""
    place = (1, 1)
    _check(text, limits)
    opened = [_Open("", place, [])]
    try:
        for number, (kind, word, place) in enumerate(_tokens(text), 1):
            if number % _AT_ONCE == 0:
                yield Breath()
            if kind in _BETWEEN:
                continue
            if kind == "mark" and word != ")":
                if len(opened) > limits.nesting:
                    raise Problem(f"the program is nested more than {limits.nesting} deep")
                opened.append(_Open(word, place, []))
            elif word == ")" and kind == "mark":
                _add(opened, *_closed(opened, place))
            else:
                _add(opened, _simple(kind, word), place)
            if len(opened[-1].items) > limits.list_length:
                raise Problem(f"a list has at most {limits.list_length} elements")
    except Problem as problem:
        raise LispError(problem.message, *(problem.place or place)) from None
    if len(opened) > 1:
        what = "a form after" if opened[-1].mark in QUOTES else ") of"
        raise LispError(f"the text ends without {what} this {opened[-1].mark}", *opened[-1].place)
    return _chained(opened[0].items)


def _check(text: str, limits: LispLimits) -> None:
    if len(text) > limits.program_characters:
        raise LispError(f"a program has at most {limits.program_characters} characters", 1, 1)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        before = text[: error.start]
        column = error.start - (before.rfind("\n") + 1) + 1
        raise LispError("this is no character", before.count("\n") + 1, column) from None


def _simple(kind: str, word: str) -> Datum:
    if kind == "string":
        return unescaped(word)
    return Symbol(unescaped(word)) if kind == "symbol" else atom(word)


def _closed(opened: list[_Open], place: Place) -> tuple[Datum, Place]:
    """What a closing parenthesis ends."""
    mark, began, items = opened.pop()
    if mark == "(":
        return _chained(items), began
    if mark == _OUTCOME:
        return outcome_of([item for item, _ in items]), began
    what = f"a form is missing after {mark}" if mark else "this ) closes nothing"
    raise Problem(what, began if mark else place)


def _add(opened: list[_Open], datum: Datum, place: Place) -> None:
    """Adds a datum to what is open; it ends the quotes in front of it."""
    while opened[-1].mark in QUOTES:
        mark, began, _ = opened.pop()
        datum = _chained([(Symbol(QUOTES[mark]), began), (datum, place)])
        place = began
    opened[-1].items.append((datum, place))


def _chained(items: list[tuple[Datum, Place]]) -> Cons:
    found = EMPTY
    for datum, place in reversed(items):
        found = Cons(datum, found, place)
    return found


def _tokens(text: str) -> Iterator[_Token]:
    """All tokens, those that mean nothing included, which take time as well. Raises: Problem."""
    at = line_start = 0
    line = 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        place = (line, at - line_start + 1)
        if found is None:
            what = "string" if text[at] == '"' else "symbol between bars"
            raise Problem(f"the {what} does not end", place)
        kind = found.lastgroup or ""
        end = _comment_end(text, at, place) if kind == "comment" else found.end()
        yield _Token(kind, "" if kind in _BETWEEN else found[kind], place)
        lines = text.count("\n", at, end)
        if lines:
            line += lines
            line_start = text.rfind("\n", at, end) + 1
        at = end


def _comment_end(text: str, at: int, place: Place) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "#|" else -1
        if depth == 0:
            return edge.end()
    raise Problem("the comment does not end", place)
