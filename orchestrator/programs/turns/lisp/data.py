"""Values inside the evaluator: lists of cells, functions, and the way in and out.

Numbers, texts, symbols, booleans and None are what they are outside. Lists are chains of cells, so
that `cons` and `cdr` take the same time for every list; outside they are tuples. No value is ever
changed after it was made.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, Final, Protocol, TypeAlias

from orchestrator.programs.turns.lisp.errors import Place, Problem
from orchestrator.programs.turns.lisp.limits import BURST, Allowance
from orchestrator.programs.turns.outcome import Metadata, Outcome, Symbol, Value
from orchestrator.programs.turns.programs import Breath, finished

# A value inside the evaluator: None, bool, int, float, str, Symbol, Cons, Outcome, or a function.
Datum: TypeAlias = Any
Frame: TypeAlias = list[Any] | None
MAX_BITS: Final = 4096
ATOMS: Final = frozenset({type(None), bool, int, float, str, Symbol})
TEXTS: Final = frozenset({str, Symbol})


class Cons:
    """A list: its first element and the rest, or the empty list, whose length is 0.

    `place` is where a reader found the first element.
    """

    __slots__ = ("head", "length", "place", "tail")

    def __init__(self, head: Datum, tail: "Cons", place: Place | None = None) -> None:
        self.head = head
        self.tail = tail
        self.length: int = tail.length + 1
        self.place = place

    def __iter__(self) -> Iterator[Datum]:
        cell = self
        while cell.length:
            yield cell.head
            cell = cell.tail


def _nothing() -> Cons:
    empty = Cons.__new__(Cons)
    empty.head = empty.place = None
    empty.tail = empty
    empty.length = 0
    return empty


EMPTY: Final = _nothing()


def chain(items: Sequence[Datum], tail: Cons = EMPTY) -> Cons:
    """The items as a list in front of another one."""
    for item in reversed(items):
        tail = Cons(item, tail)
    return tail


def placed(items: Iterable[Datum], place: Place | None) -> Cons:
    """The items as a list, all at one place."""
    tail = EMPTY
    for item in reversed(list(items)):
        tail = Cons(item, tail, place)
    return tail


class Body(Protocol):
    """What all functions of one `lambda` have in common; `source` is its form.

    The machine enters `body` in a frame of the call. If the function and its arguments are `plain`
    values in number, they are the frame; otherwise `frame` makes it.
    """

    name: str
    source: Cons
    body: Any
    plain: int

    def frame(self, function: "Function", arguments: list[Datum], machine: Any) -> list[Any]:
        """The frame of a call. Raises: Problem for a wrong number of arguments."""


class Function:
    """A function of the program, with the variables that were around it."""

    __slots__ = ("code", "frame")

    def __init__(self, code: Body, frame: Frame) -> None:
        self.code = code
        self.frame = frame

    @property
    def name(self) -> str:
        """The name in its definition."""
        return self.code.name


class DriverFunction:
    """An operation as a function, which the driver performs."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def is_false(value: Datum) -> bool:
    """Whether it counts as false: #f and nil do."""
    return value is False or value is None


def kind(value: Datum) -> str:
    """The kind of a value with its article, for messages."""
    return _KINDS.get(type(value), "a function")


_KINDS: Final[dict[type, str]] = {
    type(None): "nil",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    Symbol: "a symbol",
    Cons: "a list",
    Outcome: "an outcome",
}


def equal(one: Datum, other: Datum, allowance: Allowance) -> bool:
    """Whether two values are the same, element by element; 1 and 1.0 are not.

    Raises: Problem at the limit of steps.
    """
    waiting = [(one, other)]
    while waiting:
        one, other = waiting.pop()
        if one is other:
            continue
        if type(one) is not type(other):
            return False
        if type(one) is Cons:
            if one.length != other.length:
                return False
            allowance.work(2)
            waiting += [(one.tail, other.tail), (one.head, other.head)]
        elif type(one) is Outcome:
            allowance.work(4 + _weight(one.metadata))
            if one.tag != other.tag or one.metadata != other.metadata:
                return False
            waiting += zip(one.members, other.members, strict=True)
        elif type(one) in ATOMS:
            if type(one) in TEXTS:
                if not same_text(one, other, allowance):
                    return False
            elif one != other:
                return False
        else:
            return False  # two functions are never the same
    return True


def same_text(one: str, other: str, allowance: Allowance) -> bool:
    """Whether two texts, or names, have the same characters. Raises: Problem."""
    if len(one) != len(other):
        return False
    allowance.work(len(one) >> 6)
    return one == other


def _weight(metadata: Metadata) -> int:
    """The cost of a comparison."""
    return len(metadata.signature or "") >> 6


def outward(value: Datum, allowance: Allowance) -> Value:
    """A value of the program's for the driver.

    Raises: Problem at a limit, for a function, and if it is nested too deeply.
    """
    return finished(take_out(value, allowance))


def bring_in(value: Value, allowance: Allowance) -> Generator[Breath, object, Datum]:
    """A value of the driver's for the program, with breaths for a large one.

    Raises: Problem at a limit.
    """
    return (yield from _converted(value, allowance, tuple))


def take_out(value: Datum, allowance: Allowance) -> Generator[Breath, object, Value]:
    """`outward`, with breaths for a large value."""
    found: Value = yield from _converted(value, allowance, Cons)
    return found


def _converted(value: Datum, allowance: Allowance, lists: type) -> Generator[Breath, object, Datum]:
    """A copy with the other kind of lists: cells for tuples, or tuples for cells."""
    if type(value) in ATOMS:
        _count(value, allowance)
        return value
    # Each level: what is copied, its elements that are left, and copies of those before.
    levels: list[tuple[Datum, Iterator[Datum], list[Datum]]] = []
    made: list[Datum] = []
    left = iter((value,))
    source: Datum = None
    total = 0
    while True:
        each: Datum = next(left, levels)  # the list of levels is no value
        if each is levels:
            if not levels:
                return made[0]
            whole = _rebuilt(source, made)
            source, left, made = levels.pop()
            made.append(whole)
        elif type(each) in ATOMS:
            _count(each, allowance)
            made.append(each)
        elif type(each) is lists or type(each) is Outcome:
            if len(levels) >= allowance.limits.value_nesting:
                most = allowance.limits.value_nesting
                raise Problem(f"a value is nested more than {most} deep")
            elements: Any = each.members if type(each) is Outcome else each
            length: int = each.length if type(each) is Cons else len(elements)
            total += length
            if total > allowance.limits.value_elements:
                most = allowance.limits.value_elements
                raise Problem(f"a value has more than {most} elements")
            allowance.cells(length)
            allowance.work(3)
            if allowance.burst > BURST:
                yield from allowance.rest()
            levels.append((source, left, made))
            source, left, made = each, iter(elements), []
        else:
            raise Problem(f"{kind(each)} is not a value that operations take or give")


def _count(value: Datum, allowance: Allowance) -> None:
    if type(value) is str:
        allowance.text(len(value), wide=not value.isascii())
    elif type(value) is Symbol:
        allowance.work(len(value) >> 6)
    elif type(value) in (int, float):
        number(value)
        if type(value) is int:
            # Outside it is written with digits, which takes longer than to copy it.
            allowance.work(value.bit_length() >> 5)


def number(value: int | float) -> int | float:
    """The number. Raises: Problem if it is too large for the language, or no number."""
    if type(value) is int:
        if value.bit_length() > MAX_BITS:
            raise Problem(f"an integer has at most {MAX_BITS} bits")
    elif not isfinite(value):
        raise Problem("a decimal must be finite")
    return value


def _rebuilt(source: Datum, elements: list[Datum]) -> Datum:
    if type(source) is Outcome:
        return Outcome(source.tag, tuple(elements), source.metadata)
    return tuple(elements) if type(source) is Cons else chain(elements)
