"""Writes values as text that the reader reads back as equal values."""

from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.turns.lisp.data import Cons, Datum, chain, placed
from orchestrator.turns.lisp.errors import Problem
from orchestrator.turns.lisp.limits import Allowance
from orchestrator.turns.lisp.texts import QUOTES, escaped, shortened, symbol_text
from orchestrator.turns.outcome import Outcome, Symbol

_MARKS = {name: mark for mark, name in QUOTES.items()}
_SHORT = 60


class _Rest(NamedTuple):
    """The elements of a list that are still to be written."""

    cell: Cons


def written(value: Datum, most: int, allowance: Allowance) -> str:
    """A value as text. Raises: Problem for a function, and beyond `most` characters."""
    return _joined(_pieces(value, functions=False), most, allowance)


def displayed(value: Datum, most: int, allowance: Allowance) -> str:
    """A value as people read it: a string is its characters. Raises: Problem beyond `most`."""
    if type(value) in (str, Symbol):
        return _joined(iter((str(value),)), most, allowance)
    return _joined(_pieces(value, functions=True), most, allowance)


def short(value: Datum) -> str:
    """The beginning of a value, for messages."""
    found = ""
    if type(value) is str:
        value = value[: _SHORT + 1]
    for piece in _pieces(value, functions=True):
        found += piece[: _SHORT + 1]
        if len(found) > _SHORT:
            break
    return shortened(found, _SHORT)


def _joined(pieces: Iterator[str], most: int, allowance: Allowance) -> str:
    found: list[str] = []
    length = 0
    for piece in pieces:
        length += len(piece)
        allowance.work(1 + (len(piece) >> 6))
        if length > most:
            raise Problem(f"a value has more than {most} characters as text")
        found.append(piece)
    return "".join(found)


def _pieces(value: Datum, *, functions: bool) -> Iterator[str]:
    waiting: list[Datum] = [value]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind is _Rest:
            if each.cell.length:
                yield " "
                waiting += [_Rest(each.cell.tail), each.cell.head]
            else:
                yield ")"
        elif kind is Cons:
            mark = _mark(each)
            if mark:
                yield mark
                waiting.append(each.tail.head)
            elif each.length:
                yield "("
                waiting += [_Rest(each.tail), each.head]
            else:
                yield "()"
        elif kind is Outcome:
            yield f"#outcome({each.tag}"
            waiting.append(_Rest(_members(each)))
        else:
            yield _atom(each, functions=functions)


def _mark(form: Cons) -> str | None:
    """The mark of a form that is written as a quote."""
    if form.length != 2 or type(form.head) is not Symbol:
        return None
    return _MARKS.get(form.head)


def _members(outcome: Outcome) -> Cons:
    shown = outcome.metadata.json()
    metadata = [placed((Symbol(name), value), None) for name, value in shown.items()]
    return chain([*outcome.members, *([chain([Symbol("metadata"), *metadata])] if shown else [])])


def _atom(value: Datum, *, functions: bool) -> str:
    if value is None:
        return "nil"
    kind = type(value)
    if kind is bool:
        return "#t" if value else "#f"
    if kind is Symbol:
        return symbol_text(value)
    if kind is str:
        return escaped(value, '"')
    if kind in (int, float):
        return repr(value)
    if not functions:
        raise Problem(f"the function {value.name} can't be written as text")
    return f"#<function {value.name}>"
