"""Functions on numbers. Integers are exact up to 4,096 bits; decimals are always finite."""

import math
import operator
from collections.abc import Callable
from typing import Final

from orchestrator.programs.turns.lisp.builtins.primitive import Primitive
from orchestrator.programs.turns.lisp.data import MAX_BITS, Datum, number
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import Allowance
from orchestrator.programs.turns.lisp.texts import number_of

Number = int | float


# An integer of more bits is counted as memory.
_SMALL = 63
# So many bits count as one thing; fewer where the time grows with the square of the bits.
_BITS = 256
_BITS_HARD = 32
_HARD = ("*", "/", "quotient", "remainder", "modulo", "expt", "sqrt", "number->string")


def _computed(allowance: Allowance, operation: Callable[..., Number], *operands: Number) -> Number:
    """Raises: Problem if there is no result, or it is too large."""
    try:
        found = number(operation(*operands))
    except OverflowError:
        raise Problem("the result is too large for a decimal") from None
    except ZeroDivisionError:
        raise Problem("a number is divided by zero") from None
    if type(found) is int and found.bit_length() > _SMALL:
        allowance.hold(found.bit_length() >> 2)
    return found


def _counting(signature: str, function: Callable[..., Datum]) -> Callable[..., Datum]:
    """Counts what a function looks at in large integers, before it does."""
    bits = _BITS_HARD if signature[1:-1].split()[0] in _HARD else _BITS

    def call(allowance: Allowance, *numbers: Number) -> Datum:
        for each in numbers:
            if type(each) is int and each.bit_length() > _SMALL:
                allowance.work(each.bit_length() // bits)
        return function(allowance, *numbers)

    return call


def _add(allowance: Allowance, *numbers: Number) -> Number:
    total: Number = 0
    for each in numbers:
        total = _computed(allowance, operator.add, total, each)
    return total


def _subtract(allowance: Allowance, first: Number, *numbers: Number) -> Number:
    if not numbers:
        return _computed(allowance, operator.neg, first)
    for each in numbers:
        first = _computed(allowance, operator.sub, first, each)
    return first


def _multiply(allowance: Allowance, *numbers: Number) -> Number:
    product: Number = 1
    for each in numbers:
        product = _computed(allowance, operator.mul, product, each)
    return product


def _divide(allowance: Allowance, first: Number, *numbers: Number) -> Number:
    if not numbers:
        return _quotient(allowance, 1, first)
    for each in numbers:
        first = _quotient(allowance, first, each)
    return first


def _quotient(allowance: Allowance, one: Number, other: Number) -> Number:
    if type(one) is int and type(other) is int and other and not one % other:
        return one // other
    return _computed(allowance, operator.truediv, one, other)


def _truncated(one: int, other: int) -> int:
    found = abs(one) // abs(other)
    return found if (one < 0) == (other < 0) else -found


def _remainder(one: int, other: int) -> int:
    return one - other * _truncated(one, other)


def _power(allowance: Allowance, base: Number, n: int) -> Number:
    if type(base) is int and abs(base) > 1 and (base.bit_length() - 1) * n > MAX_BITS:
        raise Problem(f"an integer has at most {MAX_BITS} bits")
    return _computed(allowance, pow, base, n)


def _root(allowance: Allowance, value: Number) -> Number:
    if value < 0:
        raise Problem("a negative number has no square root")
    if type(value) is int and math.isqrt(value) ** 2 == value:
        return math.isqrt(value)
    return _computed(allowance, math.sqrt, value)


def _binary(operation: Callable[..., Number]) -> Callable[..., Number]:
    return lambda allowance, one, other: _computed(allowance, operation, one, other)


def _unary(operation: Callable[..., Number]) -> Callable[..., Number]:
    return lambda allowance, value: _computed(allowance, operation, value)


def _ordered(operation: Callable[[Number, Number], bool]) -> Callable[..., bool]:
    def compare(_allowance: Allowance, *numbers: Number) -> bool:
        return all(map(operation, numbers, numbers[1:]))

    return compare


def _test(decide: Callable[..., bool]) -> Callable[..., bool]:
    return lambda _allowance, value: decide(value)


def _parsed(allowance: Allowance, text: str) -> Datum:
    allowance.work(len(text) >> 4)
    found = number_of(text)
    return False if found is None else found


def _text(allowance: Allowance, value: Number) -> str:
    found = repr(value)
    allowance.text(len(found), wide=False)
    return found


NUMBERS: Final = tuple(
    Primitive(signature, doc, _counting(signature, function), quick=True)
    for signature, doc, function in (
        ("(+ number ...)", "The sum.", _add),
        (
            "(- number number ...)",
            "The first minus the others; of one number, its negative.",
            _subtract,
        ),
        ("(* number ...)", "The product.", _multiply),
        ("(/ number number ...)", "The first divided by the others: an integer if exact.", _divide),
        ("(quotient n n)", "The division without its fraction.", _binary(_truncated)),
        ("(remainder n n)", "What quotient leaves; it has the first sign.", _binary(_remainder)),
        (
            "(modulo n n)",
            "What is left of a division; it has the second sign.",
            _binary(operator.mod),
        ),
        ("(abs number)", "The number without its sign.", _unary(abs)),
        ("(min number number ...)", "The smallest.", lambda _, *numbers: min(numbers)),
        ("(max number number ...)", "The largest.", lambda _, *numbers: max(numbers)),
        ("(round number)", "The nearest integer, the even one of two.", _unary(round)),
        ("(floor number)", "The next integer below.", _unary(math.floor)),
        ("(ceiling number)", "The next integer above.", _unary(math.ceil)),
        ("(truncate number)", "The integer without the fraction.", _unary(math.trunc)),
        ("(expt number n)", "The power.", _power),
        ("(sqrt number)", "The square root: an integer if exact.", _root),
        ("(number->string number)", "As text.", _text),
        ("(string->number text)", "The number that a text is; #f if it is none.", _parsed),
        ("(= number number ...)", "Whether all are equal; 1 and 1.0 are.", _ordered(operator.eq)),
        ("(< number number ...)", "Whether each is less than the next.", _ordered(operator.lt)),
        ("(> number number ...)", "Whether each is more than the next.", _ordered(operator.gt)),
        ("(<= number number ...)", "Whether none is more than the next.", _ordered(operator.le)),
        ("(>= number number ...)", "Whether none is less than the next.", _ordered(operator.ge)),
        ("(zero? number)", "Whether it is 0.", _test(lambda value: value == 0)),
        ("(positive? number)", "Whether it is more than 0.", _test(lambda value: value > 0)),
        ("(negative? number)", "Whether it is less than 0.", _test(lambda value: value < 0)),
        ("(even? n)", "Whether 2 divides it.", _test(lambda value: value % 2 == 0)),
        ("(odd? n)", "Whether 2 does not divide it.", _test(lambda value: value % 2 == 1)),
    )
)
