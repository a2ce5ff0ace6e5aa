"""Compiled forms. The machine enters one in a frame, and resumes it with the value it waited for.

Both return a value, or `NEXT` when the machine is to enter its `node` in its `frame`, or `ASK` when
the driver is to be asked. A frame is a list: the frame around it, then the values of its variables.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from typing_extensions import override

from orchestrator.programs.turns.lisp.data import TEXTS, Datum, Frame
from orchestrator.programs.turns.lisp.errors import Place, Problem
from orchestrator.programs.turns.lisp.keys import table_key
from orchestrator.programs.turns.lisp.limits import Allowance
from orchestrator.programs.turns.lisp.stackless import Getter, Operand

NEXT: Final[Any] = object()
ASK: Final[Any] = object()


class Expression:
    """A compiled form: where it is, and in which function."""

    __slots__ = ("get", "nested", "owner", "parts", "place")

    def __init__(self, place: Place, owner: str) -> None:
        self.place = place
        self.owner = owner
        # Without a stack: how to get its value, how many parts it has, how deep they are nested.
        self.get: Getter | None = None
        self.parts = 0
        self.nested = 0

    def enter(self, machine: "Registers", frame: Frame) -> Datum:
        """Evaluates it in a frame, or begins to."""
        raise NotImplementedError

    def resume(self, machine: "Registers", frame: Frame, state: Any, value: Datum) -> Datum:
        """Goes on with a value that it waited for."""
        raise NotImplementedError


NOTHING: Final = Expression((1, 1), "program")


class Registers:
    """The part of a machine that forms touch.

    Attributes:
        stack: what waits for a value: expression, frame, and its own state.
        node, frame: what is entered next, and in which frame.
        depth: the most that may wait.
    """

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.depth = allowance.limits.depth
        self.stack: list[tuple[Expression, Any, Any]] = []
        self.node: Expression = NOTHING
        self.frame: Frame = None

    def too_deep(self) -> Problem:
        """The problem of a program that waits for too many values at once."""
        return Problem(f"more than {self.depth} calls wait for another one's value")

    def apply(self, function: Datum, arguments: list[Datum], node: "Expression") -> Datum:
        """Calls any function for an expression. Raises: Problem."""
        raise NotImplementedError

    def drive(self, steps: Any, value: Datum, node: "Expression") -> Datum:
        """Goes on with a generator, until it needs another value or ends. Raises: Problem."""
        raise NotImplementedError


class Quick(Expression):
    """An expression whose value needs no stack."""

    __slots__ = ("operand", "value")

    def __init__(
        self,
        place: Place,
        owner: str,
        get: Getter,
        parts: Sequence[Expression] = (),
        operand: Operand | None = None,
    ) -> None:
        super().__init__(place, owner)
        self.get = self.value = get
        self.operand = operand
        self.parts = 1 + sum(part.parts for part in parts)
        self.nested = 1 + max((part.nested for part in parts), default=0)

    @override
    def enter(self, machine: Registers, frame: Frame) -> Datum:
        return self.value(frame)


class Branching(Expression):
    """`if`."""

    __slots__ = ("other", "test", "then")

    def __init__(
        self, place: Place, owner: str, test: Expression, then: Expression, other: Expression
    ) -> None:
        super().__init__(place, owner)
        self.test = test
        self.then = then
        self.other = other

    @override
    def enter(self, machine: Registers, frame: Frame) -> Datum:
        test = self.test
        if test.get is None:
            machine.stack.append((self, frame, None))
            machine.node = test
            return NEXT
        value = test.get(frame)
        branch = self.other if value is False or value is None else self.then
        if branch.get is not None:
            return branch.get(frame)
        machine.node = branch
        return NEXT

    @override
    def resume(self, machine: Registers, frame: Frame, state: Any, value: Datum) -> Datum:
        machine.node = self.other if value is False or value is None else self.then
        machine.frame = frame
        return NEXT


class Either(Expression):
    """`and` and `or` of two: the first value if it decides, else the second."""

    __slots__ = ("first", "second", "while_true")

    def __init__(
        self, place: Place, owner: str, first: Expression, second: Expression, *, while_true: bool
    ) -> None:
        super().__init__(place, owner)
        self.first = first
        self.second = second
        self.while_true = while_true

    @override
    def enter(self, machine: Registers, frame: Frame) -> Datum:
        if self.first.get is not None:
            return self.resume(machine, frame, None, self.first.get(frame))
        machine.stack.append((self, frame, None))
        machine.node = self.first
        return NEXT

    @override
    def resume(self, machine: Registers, frame: Frame, state: Any, value: Datum) -> Datum:
        if (value is False or value is None) is self.while_true:
            return value
        machine.node = self.second
        machine.frame = frame
        return NEXT


class InOrder(Expression):
    """Forms one after another; the last one's value counts."""

    __slots__ = ("items", "last")

    def __init__(self, place: Place, owner: str, items: Sequence[Expression]) -> None:
        super().__init__(place, owner)
        self.items = items
        self.last = len(items) - 1

    @override
    def enter(self, machine: Registers, frame: Frame) -> Datum:
        machine.stack.append((self, frame, 1))
        machine.node = self.items[0]
        return NEXT

    @override
    def resume(self, machine: Registers, frame: Frame, state: int, value: Datum) -> Datum:
        if state < self.last:
            machine.stack.append((self, frame, state + 1))
        machine.node = self.items[state]
        machine.frame = frame
        return NEXT


class CaseBranches(Expression):
    """`case`: the branch of a value that is one of constants."""

    __slots__ = ("_branches", "_key", "_other")

    def __init__(
        self,
        place: Place,
        owner: str,
        key: Expression,
        branches: Mapping[Hashable, Expression],
        other: Expression,
    ) -> None:
        super().__init__(place, owner)
        self._key = key
        self._branches = branches
        self._other = other

    @override
    def enter(self, machine: Registers, frame: Frame) -> Datum:
        machine.stack.append((self, frame, None))
        machine.node = self._key
        return NEXT

    @override
    def resume(self, machine: Registers, frame: Frame, state: Any, value: Datum) -> Datum:
        if type(value) in TEXTS:
            machine.allowance.work(len(value) >> 5)
        # Lists are no constants of a case, and what is none has no branch.
        found = self._branches.get(table_key(value))
        machine.node = self._other if found is None else found
        machine.frame = frame
        return NEXT
