"""Functions that call functions of the program, one call at a time."""

import hashlib
from collections.abc import Generator
from typing import Final

from orchestrator.programs.turns.lisp.builtins.primitive import Applied, Control, Steps, wrong
from orchestrator.programs.turns.lisp.builtins.sorting import sort
from orchestrator.programs.turns.lisp.data import Cons, Datum, chain, equal, is_false
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import Allowance
from orchestrator.programs.turns.lisp.made_outcomes import made
from orchestrator.programs.turns.lisp.printer import writing
from orchestrator.programs.turns.programs import Breath, Operation

# Characters of a value's digest in an outcome.
_SIGNATURE = 16


def _map(allowance: Allowance, function: Datum, items: Cons, *more: Cons) -> Steps:
    allowance.cells(min(each.length for each in (items, *more)))
    found = []
    for row in zip(items, *more, strict=False):
        found.append((yield Applied(function, list(row))))
    return chain(found)


def _for_each(_allowance: Allowance, function: Datum, items: Cons) -> Steps:
    for item in items:
        yield Applied(function, [item])
    return None


def _filter(allowance: Allowance, function: Datum, items: Cons) -> Steps:
    found = []
    for item in items:
        if not is_false((yield Applied(function, [item]))):
            found.append(item)
    allowance.cells(len(found))
    return chain(found)


def _find(_allowance: Allowance, function: Datum, items: Cons) -> Steps:
    for item in items:
        if not is_false((yield Applied(function, [item]))):
            return item
    return None


def _some(_allowance: Allowance, function: Datum, items: Cons) -> Steps:
    for item in items:
        if not is_false((yield Applied(function, [item]))):
            return True
    return False


def _all(_allowance: Allowance, function: Datum, items: Cons) -> Steps:
    for item in items:
        if is_false((yield Applied(function, [item]))):
            return False
    return True


def _fold(_allowance: Allowance, function: Datum, value: Datum, items: Cons) -> Steps:
    for item in items:
        value = yield Applied(function, [value, item])
    return value


def _reduce(allowance: Allowance, function: Datum, first: Datum, *rest: Datum) -> Steps:
    value, items = (first, *rest) if rest else (None, first)
    if type(items) is not Cons:
        raise wrong("reduce", "a list", items)
    if not rest:
        if not items.length:
            raise Problem("reduce of an empty list needs a first value: (reduce f value list)")
        value, items = items.head, items.tail
    return (yield from _fold(allowance, function, value, items))


def _apply(allowance: Allowance, function: Datum, *values: Datum) -> Steps:
    if type(values[-1]) is not Cons:
        raise wrong("apply", "a list as its last argument", values[-1])
    allowance.cells(values[-1].length)
    return Applied(function, [*values[:-1], *values[-1]])
    yield  # which makes it a generator


def _fixpoint(allowance: Allowance, function: Datum, value: Datum, most: int) -> Steps:
    yield Operation("fixpoint", ())
    seen = {(yield from digest(allowance, value)): 0}
    for _ in range(most):
        before, value = value, (yield Applied(function, [value]))
        if equal(before, value, allowance):
            return value
        signature = yield from digest(allowance, value)
        if signature in seen:
            found = list(seen)[seen[signature] :]
            return made("cycle", value, len(found), chain([each[:_SIGNATURE] for each in found]))
        allowance.text(len(signature), wide=False)
        seen[signature] = len(seen)
    return made("nonconverged", value, max(most, 0), "max-iterations")


def digest(allowance: Allowance, *values: Datum) -> Generator[Breath, object, str]:
    """The sha256 of values as text. Raises: Problem for a function, and at a limit."""
    most = allowance.limits.text_characters
    found = hashlib.sha256()
    for value in values:
        text = yield from writing(value, most, allowance)
        allowance.text(len(text), wide=False)
        found.update(text.encode() + b"\n")
    return found.hexdigest()


CONTROLS: Final = (
    Control("(map function list list ...)", "The function's values for each element.", _map),
    Control("(for-each function list)", "Calls the function with each element.", _for_each),
    Control("(filter function list)", "The elements for which it holds.", _filter),
    Control("(find function list)", "The first element for which it holds; or nil.", _find),
    Control("(any? function list)", "Whether it holds for an element.", _some),
    Control("(all? function list)", "Whether it holds for all elements.", _all),
    Control("(fold function value list)", "Calls (f value element) with each element.", _fold),
    Control("(reduce function [value] list)", "As fold; without value, from the first.", _reduce),
    Control("(apply function value value ...)", "Calls it; the last value is a list.", _apply),
    Control("(sort list [function])", "In order; the function says what is less.", sort),
    Control(
        "(fixpoint function value n)",
        "Applies it until the value stays; else an outcome cycle, or nonconverged after n times.",
        _fixpoint,
    ),
)
