"""Dictionaries: lists of `(name value)`, whose names are symbols."""

from typing import Final

from orchestrator.programs.turns.lisp.builtins.primitive import Primitive, wrong
from orchestrator.programs.turns.lisp.data import EMPTY, TEXTS, Cons, Datum, chain, equal, same_text
from orchestrator.programs.turns.lisp.limits import CELL, Allowance
from orchestrator.programs.turns.outcome import Symbol


def _entry(items: Cons) -> Cons:
    entry = items.head
    if type(entry) is not Cons or entry.length != 2:
        raise wrong("a dictionary", "entries like (name value)", entry)
    return entry


def _name(allowance: Allowance, key: Datum) -> Datum:
    """The name of a new entry: a symbol for a string."""
    if type(key) is not str:
        return key
    allowance.text(len(key), wide=not key.isascii())
    return Symbol(key)


def _find(allowance: Allowance, entries: Cons, key: Datum) -> Cons:
    """The list from the entry of that name on. A string and a symbol name the same entry."""
    is_text = type(key) in TEXTS
    while entries.length:
        allowance.work(2)
        name = _entry(entries).head
        if is_text:
            if type(name) in TEXTS and same_text(name, key, allowance):
                break
        elif equal(name, key, allowance):
            break
        entries = entries.tail
    return entries


def _get(allowance: Allowance, entries: Cons, key: Datum, default: Datum = None) -> Datum:
    found = _find(allowance, entries, key)
    return found.head.tail.head if found.length else default


def _has(allowance: Allowance, entries: Cons, key: Datum) -> bool:
    return _find(allowance, entries, key).length > 0


def _put(allowance: Allowance, entries: Cons, key: Datum, value: Datum) -> Cons:
    """Replaces the entry where it is, or adds one at the end."""
    found = _find(allowance, entries, key)
    before = entries.length - found.length
    allowance.cells(entries.length + 1)
    allowance.hold(3 * CELL)
    entry = chain([_name(allowance, key), value])
    kept = [each for each, _ in zip(entries, range(before), strict=False)]
    return chain(kept, Cons(entry, found.tail if found.length else EMPTY))


def _remove(allowance: Allowance, entries: Cons, key: Datum) -> Cons:
    found = _find(allowance, entries, key)
    if not found.length:
        return entries
    before = entries.length - found.length
    allowance.cells(before)
    kept = [each for each, _ in zip(entries, range(before), strict=False)]
    return chain(kept, found.tail)


def _parts(allowance: Allowance, entries: Cons) -> list[Cons]:
    allowance.cells(entries.length)
    found = []
    while entries.length:
        found.append(_entry(entries))
        entries = entries.tail
    return found


def _keys(allowance: Allowance, entries: Cons) -> Cons:
    return chain([entry.head for entry in _parts(allowance, entries)])


def _values(allowance: Allowance, entries: Cons) -> Cons:
    return chain([entry.tail.head for entry in _parts(allowance, entries)])


DICTIONARIES: Final = (
    Primitive("(get dictionary key [default])", "The value of a name; nil without it.", _get),
    Primitive("(has? dictionary key)", "Whether it has the name.", _has),
    Primitive("(put dictionary key value)", "A dictionary with that value.", _put),
    Primitive("(remove-key dictionary key)", "A dictionary without that name.", _remove),
    Primitive("(keys dictionary)", "The names.", _keys),
    Primitive("(values dictionary)", "The values.", _values),
)
