"""Writes values as text that the reader reads back as equal values."""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import NamedTuple

from orchestrator.programs.turns.lisp.data import ATOMS, TEXTS, Cons, Datum, chain, placed
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import BURST, Allowance
from orchestrator.programs.turns.lisp.texts import QUOTES, escaped, is_plain, shortened, symbol_text
from orchestrator.programs.turns.outcome import Outcome, Symbol
from orchestrator.programs.turns.programs import Breath, finished

_MARKS = {name: mark for mark, name in QUOTES.items()}
_SHORT = 60


class _Rest(NamedTuple):
    """The elements of a list that are still to be written."""

    cell: Cons


def written(value: Datum, most: int, allowance: Allowance) -> str:
    """A value as text. Raises: Problem for a function, and beyond `most` characters."""
    return finished(writing(value, most, allowance))


def writing(value: Datum, most: int, allowance: Allowance) -> Generator[Breath, object, str]:
    """`written`, with breaths for a large value."""
    return (yield from _joined(value, most, allowance, functions=False))


def displayed(value: Datum, most: int, allowance: Allowance) -> str:
    """A value as people read it: a string is its characters. Raises: Problem beyond `most`."""
    return finished(displaying(value, most, allowance))


def displaying(value: Datum, most: int, allowance: Allowance) -> Generator[Breath, object, str]:
    """`displayed`, with breaths for a large value."""
    if type(value) not in TEXTS:
        return (yield from _joined(value, most, allowance, functions=True))
    _check(len(value), most)
    allowance.work(len(value) >> 6)
    return str(value)


def short(value: Datum) -> str:
    """The beginning of a value, for messages."""
    found = ""
    for piece in _pieces(value, _beginning):
        found += piece[: _SHORT + 1]
        if len(found) > _SHORT:
            break
    return shortened(found, _SHORT)


def _beginning(atom: Datum) -> str:
    """The beginning of an atom, for messages: to escape a whole long text takes long."""
    return _atom(type(atom)(atom[: _SHORT + 1]) if type(atom) in TEXTS else atom, functions=True)


def _joined(
    value: Datum, most: int, allowance: Allowance, *, functions: bool
) -> Generator[Breath, object, str]:
    found: list[str] = []
    length = 0
    for piece in _pieces(value, partial(_counted, most, allowance, functions=functions)):
        length += len(piece)
        _check(length, most)
        allowance.work(2)
        if allowance.burst > BURST:
            yield from allowance.rest()
        found.append(piece)
    return "".join(found)


def _counted(most: int, allowance: Allowance, atom: Datum, *, functions: bool) -> str:
    """An atom as text, whose cost is counted before. Raises: Problem."""
    if type(atom) in TEXTS:
        _check(len(atom), most)
        # A character that needs an escape takes as long as fifty others.
        allowance.work(len(atom) >> (6 if is_plain(atom) else 1))
    elif type(atom) is int:
        allowance.work(atom.bit_length() >> 5)
    return _atom(atom, functions=functions)


def _check(length: int, most: int) -> None:
    if length > most:
        raise Problem(f"a value has more than {most} characters as text")


def _pieces(value: Datum, write: Callable[[Datum], str]) -> Iterator[str]:
    """A value as text, piece by piece; `write` writes its atoms and functions."""
    waiting: list[Datum] = [value]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind is _Rest:
            cell = each.cell
            if not cell.length:
                yield ")"
            elif type(cell.head) in ATOMS:
                yield f" {write(cell.head)}"
                waiting.append(_Rest(cell.tail))
            else:
                yield " "
                waiting += [_Rest(cell.tail), cell.head]
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
            yield write(each)


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
