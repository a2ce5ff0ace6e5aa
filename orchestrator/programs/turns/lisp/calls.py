"""Expressions that evaluate all their parts first: calls."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from typing_extensions import override

from orchestrator.programs.turns.lisp.data import Cons, Datum, Frame, Function, chain
from orchestrator.programs.turns.lisp.errors import Place, Problem
from orchestrator.programs.turns.lisp.expressions import NEXT, Expression, Registers
from orchestrator.programs.turns.lisp.limits import CELL
from orchestrator.programs.turns.lisp.stackless import MOST_PARTS, UNSET, Getter, listed

# Quick parts that are evaluated in one step.
_AT_ONCE: Final = 8


class Gathering(Expression):
    """An expression that first evaluates all its parts, from the left."""

    __slots__ = ("_all", "items")

    def __init__(self, place: Place, owner: str, items: Sequence[Expression]) -> None:
        super().__init__(place, owner)
        self.items = items
        self._all = _all(items)

    @override
    def enter(self, machine: Registers, frame: Frame) -> Datum:
        if self._all is not None:
            return self.finish(machine, frame, self._all(frame))
        return self._gather(machine, frame, [])

    @override
    def resume(self, machine: Registers, frame: Frame, state: list[Datum], value: Datum) -> Datum:
        state.append(value)
        return self._gather(machine, frame, state)

    def _gather(self, machine: Registers, frame: Frame, values: list[Datum]) -> Datum:
        items = self.items
        at = len(values)
        for item in items[at : at + _AT_ONCE]:
            if item.get is None:
                break
            values.append(item.get(frame))
        if len(values) == len(items):
            return self.finish(machine, frame, values)
        machine.stack.append((self, frame, values))
        machine.node = items[len(values)]
        machine.frame = frame
        return NEXT

    def finish(self, machine: Registers, frame: Frame, values: list[Datum]) -> Datum:
        """Goes on with the values of all parts."""
        raise NotImplementedError


class Call(Gathering):
    """A call of a function that is known when it is called."""

    __slots__ = ()

    @override
    def finish(self, machine: Registers, frame: Frame, values: list[Datum]) -> Datum:
        function = values[0]
        if type(function) is Function:
            code = function.code
            if code.plain == len(values):
                if len(machine.stack) > machine.depth:
                    raise machine.too_deep()
                values[0] = function.frame
                machine.frame = values
                machine.node = code.body
                return NEXT
        return machine.apply(function, values[1:], self)


class Built(Gathering):
    """A call of a built-in function that only computes."""

    __slots__ = ("_call",)

    def __init__(
        self,
        place: Place,
        owner: str,
        call: Callable[[list[Datum]], Datum],
        items: Sequence[Expression],
    ) -> None:
        super().__init__(place, owner, items)
        self._call = call

    @override
    def finish(self, machine: Registers, frame: Frame, values: list[Datum]) -> Datum:
        return self._call(values)


class Code:
    """What all functions of one `lambda` have in common; `source` is its form."""

    __slots__ = ("body", "count", "further", "name", "plain", "rest", "source")

    def __init__(
        self, name: str, source: Cons, count: int, *, rest: bool, body: Expression, further: int
    ) -> None:
        self.name = name
        self.source = source
        self.count = count
        self.rest = rest
        self.body = body
        self.further = further
        # The length of a call with its function, if it has nothing but its arguments in its frame.
        self.plain = count + 1 if not rest and not further else -1

    def frame(self, function: Function, arguments: list[Datum], machine: Registers) -> list[Any]:
        """The frame of a call. Raises: Problem for a wrong number of arguments."""
        given = len(arguments)
        if given < self.count or (given > self.count and not self.rest):
            least = "at least " if self.rest else ""
            raise Problem(f"{self.name} needs {least}{self.count} arguments, and was given {given}")
        if self.rest:
            machine.allowance.hold(CELL * (given - self.count))
            arguments = [*arguments[: self.count], chain(arguments[self.count :])]
        return [function.frame, *arguments, *[UNSET] * self.further]


def _all(parts: Sequence[Expression]) -> Getter | None:
    """How to get the values of all parts in one step; None if they need more."""
    found = [part.get for part in parts if part.get is not None]
    if len(found) < len(parts) or sum(part.parts for part in parts) > MOST_PARTS:
        return None
    return listed(found)
