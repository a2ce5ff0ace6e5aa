"""Expressions that need no stack: constants, variables, and built-in functions of these.

They are compiled into Python functions from a frame to a value, so evaluating one is one step.
Their size and nesting are bounded; a larger expression is evaluated part by part, on the machine's
stack.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from orchestrator.programs.turns.lisp.builtins.primitive import Primitive
from orchestrator.programs.turns.lisp.data import Datum, Frame
from orchestrator.programs.turns.lisp.errors import Place, Problem
from orchestrator.programs.turns.lisp.limits import Allowance

Getter: TypeAlias = Callable[[Any], Datum]
_General: TypeAlias = Callable[[list[Datum]], Datum]

MOST_PARTS: Final = 32
MOST_NESTED: Final = 8
UNSET: Final = object()  # the content of a variable before its definition

# A larger integer is counted as memory.
_LARGE: Final = 1 << 63
_ON_INTEGERS: Final = {
    "+": operator.add,
    "-": operator.sub,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class Operand(NamedTuple):
    """A part that needs no call: a variable's place in the innermost frame, or a constant."""

    is_local: bool
    content: Datum


class Variable:
    """A global variable."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: Datum = UNSET) -> None:
        self.name = name
        self.value = value


def constant(value: Datum) -> Getter:
    """The same value in every frame."""
    return lambda _frame: value


def global_value(variable: Variable, place: Place) -> Getter:
    """The value of a global variable."""

    def get(_frame: Frame) -> Datum:
        value = variable.value
        if value is UNSET:
            raise Problem(f"{variable.name} is not defined", place)
        return value

    return get


def local_value(depth: int, index: int) -> Getter:
    """The value in a frame so many frames further out."""
    if depth == 0:
        return lambda frame: frame[index]
    if depth == 1:
        return lambda frame: frame[0][index]
    if depth == 2:
        return lambda frame: frame[0][0][index]

    def get(frame: Any) -> Datum:
        for _ in range(depth):
            frame = frame[0]
        return frame[index]

    return get


def defined_value(get: Getter, name: str, place: Place) -> Getter:
    """The value of a local variable that may be used before its definition."""

    def checked(frame: Frame) -> Datum:
        value = get(frame)
        if value is UNSET:
            raise Problem(f"{name} is used before it is defined", place)
        return value

    return checked


def choice(test: Getter, then: Getter, other: Getter) -> Getter:
    """One of two values."""

    def get(frame: Frame) -> Datum:
        value = test(frame)
        return other(frame) if value is False or value is None else then(frame)

    return get


def either(first: Getter, second: Getter, *, while_true: bool) -> Getter:
    """The first value if it decides an `and` or an `or`, else the second."""

    def get(frame: Frame) -> Datum:
        value = first(frame)
        return value if (value is False or value is None) is while_true else second(frame)

    return get


def computed(
    primitive: Primitive,
    parts: Sequence[Getter],
    operands: Sequence[Operand | None],
    allowance: Allowance,
    place: Place,
) -> Getter:
    """The value of a built-in function."""
    call = primitive.call

    def general(values: list[Datum]) -> Datum:
        try:
            return call(allowance, values)
        except Problem as problem:
            problem.place = problem.place or place
            raise

    if len(parts) == 1 and primitive.takes(1):
        return _of_one(primitive, parts[0], allowance, place)
    if len(parts) == 2 and primitive.name in _ON_INTEGERS:
        return _of_integers(_ON_INTEGERS[primitive.name], parts, operands, general)
    values = listed(parts)
    return lambda frame: general(values(frame))


def listed(parts: Sequence[Getter]) -> Getter:
    """The values of all parts as a list."""
    if len(parts) == 1:
        (one,) = parts
        return lambda frame: [one(frame)]
    if len(parts) == 2:
        one, two = parts
        return lambda frame: [one(frame), two(frame)]
    if len(parts) == 3:
        one, two, three = parts
        return lambda frame: [one(frame), two(frame), three(frame)]
    return lambda frame: [part(frame) for part in parts]


def _of_one(primitive: Primitive, part: Getter, allowance: Allowance, place: Place) -> Getter:
    """Calls a function of one argument that any value may be, so that it needs no check."""
    function = primitive.function

    def get(frame: Frame) -> Datum:
        try:
            return function(allowance, part(frame))
        except Problem as problem:
            problem.place = problem.place or place
            raise

    return get


def caller(primitive: Primitive, allowance: Allowance) -> _General:
    """How to call a built-in function with values; quicker for sums and comparisons of integers."""
    operation = _ON_INTEGERS.get(primitive.name)
    if operation is None:
        return partial(primitive.call, allowance)

    def call(values: list[Datum]) -> Datum:
        if len(values) == 2:
            left, right = values
            if type(left) is int and type(right) is int:
                value = operation(left, right)
                if -_LARGE < value < _LARGE:
                    return value
        return primitive.call(allowance, values)

    return call


def _of_integers(
    operation: Callable[[Any, Any], Any],
    parts: Sequence[Getter],
    operands: Sequence[Operand | None],
    general: _General,
) -> Getter:
    """A sum or a comparison of two, which are mostly small integers.

    Variables of the innermost frame and constants, the most frequent operands, need no call.
    """
    one, other = parts
    left_is, right_is = operands

    def of_values(left: Datum, right: Datum) -> Datum:
        if type(left) is int and type(right) is int:
            value = operation(left, right)
            if -_LARGE < value < _LARGE:
                return value
        return general([left, right])

    if left_is is None or right_is is None or not left_is.is_local:
        return lambda frame: of_values(one(frame), other(frame))
    if not right_is.is_local and type(right_is.content) is not int:
        return lambda frame: of_values(one(frame), other(frame))
    index, content = left_is.content, right_is.content

    def of_locals(frame: Any) -> Datum:
        left, right = frame[index], frame[content]
        if type(left) is int and type(right) is int:
            value = operation(left, right)
            if -_LARGE < value < _LARGE:
                return value
        return general([left, right])

    def of_local_and_constant(frame: Any) -> Datum:
        left = frame[index]
        if type(left) is int:
            value = operation(left, content)
            if -_LARGE < value < _LARGE:
                return value
        return general([left, content])

    return of_locals if right_is.is_local else of_local_and_constant
