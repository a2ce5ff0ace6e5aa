"""Functions on values of all kinds: predicates, equality, symbols, errors, output."""

from typing import Final, NoReturn

from orchestrator.programs.turns.lisp.builtins.primitive import FUNCTIONS, Primitive
from orchestrator.programs.turns.lisp.data import EMPTY, Cons, Datum, equal, is_false, same_text
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import Allowance
from orchestrator.programs.turns.lisp.printer import displayed
from orchestrator.programs.turns.outcome import Outcome, Symbol

_ERROR = 1000


def _error(allowance: Allowance, *values: Datum) -> NoReturn:
    words = [displayed(value, _ERROR, allowance) for value in values]
    raise Problem(" ".join(words)[:_ERROR])


def _display(allowance: Allowance, *values: Datum) -> None:
    for value in values:
        allowance.say(displayed(value, allowance.limits.output_characters, allowance))


def _print(allowance: Allowance, *values: Datum) -> None:
    for number, value in enumerate(values):
        if number:
            allowance.say(" ")
        allowance.say(displayed(value, allowance.limits.output_characters, allowance))
    allowance.say("\n")


def _newline(allowance: Allowance) -> None:
    allowance.say("\n")


def _same(allowance: Allowance, one: Datum, other: Datum) -> bool:
    """Numbers and symbols are one thing if they are equal; so are empty lists."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) is Symbol:
        return same_text(one, other, allowance)
    return type(one) in (int, float) and bool(one == other)


def _equal(allowance: Allowance, one: Datum, other: Datum) -> bool:
    return equal(one, other, allowance)


def _is_empty(_allowance: Allowance, value: Datum) -> bool:
    return value is None or value is EMPTY or (type(value) is str and not value)


GENERAL: Final = (
    Primitive("(not value)", "#t for #f and nil, else #f.", lambda _, v: is_false(v), quick=True),
    Primitive("(eq? value value)", "Whether both are one thing.", _same, quick=True),
    Primitive("(eqv? value value)", "The same as eq?.", _same, quick=True),
    Primitive("(equal? value value)", "Whether both look the same; 1 and 1.0 do not.", _equal),
    *(
        Primitive(f"({name}? value)", f"Whether it is {what}.", test, quick=True)
        for name, what, test in (
            ("null", "the empty list or nil", lambda _, v: v is None or v is EMPTY),
            ("empty", "an empty list or string, or nil", _is_empty),
            ("nil", "nil", lambda _, v: v is None),
            ("boolean", "#t or #f", lambda _, v: type(v) is bool),
            ("number", "a number", lambda _, v: type(v) in (int, float)),
            ("integer", "an integer", lambda _, v: type(v) is int),
            ("string", "a string", lambda _, v: type(v) is str),
            ("symbol", "a symbol", lambda _, v: type(v) is Symbol),
            ("list", "a list, empty or not", lambda _, v: type(v) is Cons),
            ("pair", "a list with elements", lambda _, v: type(v) is Cons and v is not EMPTY),
            ("procedure", "a function", lambda _, v: type(v) in FUNCTIONS),
            ("outcome", "an outcome", lambda _, v: type(v) is Outcome),
        )
    ),
    Primitive("(error value ...)", "Ends the program with an error; the values say why.", _error),
    Primitive("(display value ...)", "Prints the values.", _display),
    Primitive("(print value ...)", "Prints the values, with spaces and a new line.", _print),
    Primitive("(newline)", "Prints a new line.", _newline),
)
