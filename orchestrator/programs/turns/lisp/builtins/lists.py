"""Functions on lists that call no functions of the program."""

from collections.abc import Callable, Generator, Hashable
from typing import Final

from orchestrator.programs.turns.lisp.builtins.primitive import Control, Primitive, Steps, wrong
from orchestrator.programs.turns.lisp.data import EMPTY, TEXTS, Cons, Datum, chain, equal
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.keys import table_key
from orchestrator.programs.turns.lisp.limits import BURST, CELL, Allowance
from orchestrator.programs.turns.programs import Breath

# An integer of more bits is counted as memory.
_SMALL = 63


def _made(allowance: Allowance, items: list[Datum], tail: Cons = EMPTY) -> Cons:
    """The items as a list. Raises: Problem at a limit."""
    allowance.cells(len(items))
    if len(items) + tail.length > allowance.limits.list_length:
        allowance.cells(len(items) + tail.length)
    return chain(items, tail)


def _list(allowance: Allowance, *items: Datum) -> Cons:
    allowance.hold(CELL * len(items))
    return chain(items)


def _cons(allowance: Allowance, head: Datum, tail: Datum) -> Cons:
    if type(tail) is not Cons:
        raise wrong("cons", "a list as its second argument (there are no dotted pairs)", tail)
    if tail.length >= allowance.limits.list_length:
        allowance.cells(tail.length + 1)
    allowance.hold(CELL)
    return Cons(head, tail)


def _head(name: str) -> Callable[..., Datum]:
    def head(_allowance: Allowance, items: Datum) -> Datum:
        if type(items) is not Cons:
            raise wrong(name, "a list", items)
        if items is EMPTY:
            raise Problem(f"{name} of an empty list")
        return items.head

    return head


def _tail(name: str) -> Callable[..., Datum]:
    def tail(_allowance: Allowance, items: Datum) -> Datum:
        if type(items) is not Cons:
            raise wrong(name, "a list", items)
        if items is EMPTY:
            raise Problem(f"{name} of an empty list")
        return items.tail

    return tail


def _after(allowance: Allowance, items: Cons, count: int) -> Cons:
    """The list without its first elements. Raises: Problem for a negative number of them."""
    if count < 0:
        raise Problem("a number of elements can't be negative")
    count = min(count, items.length)
    allowance.work(count)
    for _ in range(count):
        items = items.tail
    return items


def _nth(allowance: Allowance, n: int, items: Cons) -> Datum:
    if not 0 <= n < items.length:
        raise Problem(f"the list has {items.length} elements, counted from 0; {n} is none of them")
    return _after(allowance, items, n).head


def _at(place: int, name: str) -> Callable[..., Datum]:
    def element(allowance: Allowance, items: Cons) -> Datum:
        if items.length <= place:
            raise Problem(f"{name} of a list of {items.length}")
        return _after(allowance, items, place).head

    return element


def _last(allowance: Allowance, items: Cons) -> Datum:
    if items is EMPTY:
        raise Problem("last of an empty list")
    return _nth(allowance, items.length - 1, items)


def _append(allowance: Allowance, *lists: Cons) -> Cons:
    if not lists:
        return EMPTY
    found = lists[-1]
    for items in reversed(lists[:-1]):
        found = _made(allowance, list(items), found)
    return found


def _reverse(allowance: Allowance, items: Cons) -> Cons:
    allowance.cells(items.length)
    found = EMPTY
    for item in items:
        found = Cons(item, found)
    return found


def _take(allowance: Allowance, n: int, items: Cons) -> Cons:
    if n < 0:
        raise Problem("a number of elements can't be negative")
    allowance.cells(min(n, items.length))
    return chain([item for item, _ in zip(items, range(n), strict=False)])


def _range(allowance: Allowance, *bounds: int) -> Cons:
    if len(bounds) == 3 and bounds[2] == 0:
        raise Problem("the step can't be 0")
    numbers = range(*bounds)
    most = allowance.limits.list_length + 1
    # `len` of a range that is too long for a C integer fails.
    length = len(numbers) if not numbers or abs(numbers[-1] - numbers[0]) < 2**62 else most
    # Large integers take time to compute, and memory.
    bits = max(abs(bound).bit_length() for bound in bounds)
    allowance.cells(length)
    allowance.work(length * (bits >> 5))
    allowance.hold(length * (bits >> 2) if bits > _SMALL else 0)
    return chain(numbers)


def _member(allowance: Allowance, value: Datum, items: Cons) -> Datum:
    while items.length:
        allowance.work(2)
        if equal(items.head, value, allowance):
            return items
        items = items.tail
    return False


def _index(allowance: Allowance, value: Datum, items: Cons) -> Datum:
    found = _member(allowance, value, items)
    return False if found is False else items.length - found.length


def _assoc(allowance: Allowance, key: Datum, items: Cons) -> Datum:
    for entry in items:
        allowance.work(2)
        if type(entry) is not Cons or entry is EMPTY:
            raise wrong("assoc", "a list of lists", entry)
        if equal(entry.head, key, allowance):
            return entry
    return False


def _zip(allowance: Allowance, *lists: Cons) -> Steps:
    length = min((items.length for items in lists), default=0)
    allowance.cells(length)
    allowance.hold(CELL * length * len(lists))
    found = []
    for row in zip(*lists, strict=False):
        allowance.work(1 + len(row))
        if allowance.burst > BURST:
            yield from allowance.rest()
        found.append(chain(row))
    return chain(found)


def _unique(allowance: Allowance, items: Cons) -> Steps:
    """Numbers, texts and symbols are found by a table; other values are compared with all."""
    seen: set[Hashable] = set()
    found: list[Datum] = []
    others: list[Datum] = []
    for item in items:
        if allowance.burst > BURST:
            yield from allowance.rest()
        allowance.work(2 + (len(item) >> 5 if type(item) in TEXTS else 0))
        key = table_key(item)
        if key is None:
            if (yield from _among(allowance, item, others)):
                continue
            others.append(item)
        elif key in seen:
            continue
        else:
            seen.add(key)
        found.append(item)
    return _made(allowance, found)


def _among(
    allowance: Allowance, item: Datum, others: list[Datum]
) -> Generator[Breath, object, bool]:
    for other in others:
        allowance.work(1)
        if allowance.burst > BURST:
            yield from allowance.rest()
        if equal(item, other, allowance):
            return True
    return False


LISTS: Final[tuple[Primitive | Control, ...]] = (
    Primitive("(list value ...)", "A list of the values.", _list, quick=True),
    Primitive("(cons value list)", "The list with the value in front.", _cons, quick=True),
    *(
        Primitive(f"({name} list)", "The first element.", _head(name), quick=True)
        for name in ("car", "first")
    ),
    *(
        Primitive(f"({name} list)", "The list without its first element.", _tail(name), quick=True)
        for name in ("cdr", "rest")
    ),
    *(
        Primitive(f"({name} list)", f"The {what} element.", _at(place, name), quick=True)
        for name, place, what in (
            ("second", 1, "second"),
            ("third", 2, "third"),
            ("cadr", 1, "second"),
            ("caddr", 2, "third"),
        )
    ),
    Primitive("(last list)", "The last element.", _last),
    Primitive("(nth n list)", "An element by its number, the first is 0.", _nth),
    Primitive("(list-ref list n)", "An element by its number.", lambda a, v, n: _nth(a, n, v)),
    Primitive("(length list)", "How many elements.", lambda _, items: items.length, quick=True),
    Primitive("(append list ...)", "One list of the elements of all.", _append),
    Primitive("(reverse list)", "The last element first.", _reverse),
    Primitive("(take n list)", "The first n elements.", _take),
    Primitive("(drop n list)", "All but the first n elements.", lambda a, n, v: _after(a, v, n)),
    Primitive(
        "(range start [end] [step])", "Integers up to end, without it; of one, from 0.", _range
    ),
    Primitive("(member value list)", "The list from the value on; #f without it.", _member),
    Primitive("(index-of value list)", "The number of the value's place; #f without it.", _index),
    Primitive("(assoc key list)", "The list in the list that begins with key; or #f.", _assoc),
    Control("(zip list ...)", "Lists of the first elements, of the second ones, ….", _zip),
    Control("(unique list)", "The elements without repetitions.", _unique),
)
