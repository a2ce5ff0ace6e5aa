"""JSON: objects are dictionaries, arrays are lists, null is nil. Nothing recurses."""

import json
import re
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from orchestrator.programs.turns.lisp.builtins.primitive import Control, Steps
from orchestrator.programs.turns.lisp.data import EMPTY, TEXTS, Cons, Datum, chain, kind
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import BURST, CELL, Allowance
from orchestrator.programs.turns.lisp.texts import number_of
from orchestrator.programs.turns.outcome import Symbol
from orchestrator.programs.turns.programs import Breath

_DEPTH = 200
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:(?P<mark>[\[\]{},:])
    |(?P<string>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")
    |(?P<word>true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    |(?P<end>\Z))""",
    re.VERBOSE,
)
_WORDS: Final = {"true": True, "false": False, "null": None}


class _Level(NamedTuple):
    """An array or an object that has begun; of an object, names and values in turn."""

    closing: str
    items: list[Datum]


def parse(allowance: Allowance, text: str) -> Steps:
    """Raises: Problem for a text that is not JSON, and at a limit."""
    levels = [_Level("", [])]
    expected = "value"
    for kind_, word, at in _tokens(text):
        level = levels[-1]
        allowance.work(4)
        if allowance.burst > BURST:
            yield from allowance.rest()
        if kind_ == "end":
            break
        if kind_ != "mark" and expected in ("value", "value or end", "name", "name or end"):
            if "name" in expected and kind_ != "string":
                raise _unexpected(text, at)
            level.items.append(_scalar(allowance, kind_, word, name="name" in expected))
            expected = "colon" if "name" in expected else "comma or end"
        elif word in ("[", "{") and expected.startswith("value"):
            if len(levels) > _DEPTH:
                raise Problem(f"JSON is nested more than {_DEPTH} deep")
            levels.append(_Level("]" if word == "[" else "}", []))
            expected = "value or end" if word == "[" else "name or end"
        elif word and word == level.closing and expected.endswith("end"):
            levels.pop()
            levels[-1].items.append((yield from _closed(allowance, level)))
            expected = "comma or end"
        elif word == "," and expected == "comma or end" and level.closing:
            expected = "value" if level.closing == "]" else "name"
        elif word == ":" and expected == "colon":
            expected = "value"
        else:
            raise _unexpected(text, at)
    if len(levels) > 1 or not levels[0].items:
        raise _unexpected(text, len(text))
    return levels[0].items[0]


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at = 0
    while True:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unexpected(text, at)
        name = found.lastgroup or ""
        yield name, found[name], found.start(name)
        if name == "end":
            return
        at = found.end()


def _scalar(allowance: Allowance, kind_: str, word: str, *, name: bool) -> Datum:
    allowance.hold(CELL)
    if kind_ != "string":
        allowance.work(len(word) >> 2)
        return _WORDS[word] if word in _WORDS else number_of(word)
    has_escapes = "\\" in word
    allowance.text(len(word), wide=not word.isascii() or has_escapes)
    # A character that is written with an escape takes as long as some twenty others.
    allowance.work(len(word) >> 4 if has_escapes else 0)
    found = json.loads(word)
    if has_escapes:
        # A half of a pair of surrogates is no character.
        found = found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return Symbol(found) if name else found


def _closed(allowance: Allowance, level: _Level) -> Generator[Breath, object, Cons]:
    allowance.cells(len(level.items))
    yield from allowance.rest()
    if level.closing == "]":
        return chain(level.items)
    allowance.hold(CELL * len(level.items))
    # Of a repeated name, the last value counts. The hash of a text can't be chosen.
    entries = dict(zip(level.items[::2], level.items[1::2], strict=True))
    return chain([chain(entry) for entry in entries.items()])


def _unexpected(text: str, at: int) -> Problem:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    what = "ends too early" if at >= len(text) else f"is wrong at {text[at : at + 20]!r}"
    return Problem(f"the JSON {what} (its line {line}, column {column})")


def stringify(allowance: Allowance, value: Datum) -> Steps:
    """Raises: Problem for a value that JSON has not, and at a limit."""
    pieces: list[str] = []
    length = 0
    for piece in _pieces(value, allowance):
        length += len(piece)
        if length > allowance.limits.text_characters:
            allowance.text(length, wide=False)
        if allowance.burst > BURST:
            yield from allowance.rest()
        pieces.append(piece)
    text = "".join(pieces)
    allowance.text(length, wide=not text.isascii())
    return text


class _Rest(NamedTuple):
    """Elements that are still to be written, and what ends them."""

    cell: Cons
    closing: str
    first: bool = False


def _pieces(value: Datum, allowance: Allowance) -> Iterator[str]:
    waiting: list[Datum] = [value]
    while waiting:
        each = waiting.pop()
        allowance.work(3)
        if type(each) is not _Rest:
            if type(each) is Cons:
                closing = "}" if _is_dictionary(each, allowance) else "]"
                yield "{" if closing == "}" else "["
                waiting.append(_Rest(each, closing, first=True))
            else:
                yield _atom(allowance, each)
            if len(waiting) > 2 * _DEPTH:
                raise Problem(f"JSON is nested more than {_DEPTH} deep")
        elif each.cell is EMPTY:
            yield each.closing
        else:
            item = each.cell.head
            comma = "" if each.first else ","
            if each.closing == "}":
                yield f"{comma}{_quoted(allowance, item.head)}:"
                item = item.tail.head
            else:
                yield comma
            waiting += [_Rest(each.cell.tail, each.closing), item]


def _is_dictionary(items: Cons, allowance: Allowance) -> bool:
    if items is EMPTY:
        return False
    for entry in items:
        allowance.work(1)
        if type(entry) is not Cons or entry.length != 2 or type(entry.head) is not Symbol:
            return False
    return True


def _atom(allowance: Allowance, value: Datum) -> str:
    if type(value) in TEXTS:
        return _quoted(allowance, value)
    if type(value) is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if type(value) is int:
        allowance.work(value.bit_length() >> 5)
    if type(value) in (int, float):
        return repr(value)
    raise Problem(f"JSON has no {kind(value).partition(' ')[2]}")


def _quoted(allowance: Allowance, text: str) -> str:
    allowance.work(len(text) >> 6)
    return json.dumps(str(text), ensure_ascii=False)


JSON: Final = (
    Control("(json-parse text)", "The value of a JSON text.", parse),
    Control("(json-stringify value)", "A value as JSON; a dictionary is an object.", stringify),
)
