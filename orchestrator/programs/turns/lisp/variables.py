"""Expressions that make variables, and give them values."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from orchestrator.programs.turns.lisp.calls import Gathering
from orchestrator.programs.turns.lisp.data import Datum, Frame
from orchestrator.programs.turns.lisp.errors import Place, Problem
from orchestrator.programs.turns.lisp.expressions import NEXT, Expression, Registers
from orchestrator.programs.turns.lisp.stackless import UNSET, Variable
from orchestrator.programs.turns.outcome import Symbol


class Let(Gathering):
    """New variables with values, and others that the body defines."""

    __slots__ = ("body", "further")

    def __init__(
        self,
        place: Place,
        owner: str,
        items: Sequence[Expression],
        body: Expression,
        further: int,
    ) -> None:
        super().__init__(place, owner, items)
        self.body = body
        self.further = further

    @override
    def finish(self, machine: Registers, frame: Frame, values: list[Datum]) -> Datum:
        machine.frame = [frame, *values, *[UNSET] * self.further]
        machine.node = self.body
        return NEXT


class SetLocal(Gathering):
    """Gives a local variable a value; `result` is the form's own."""

    __slots__ = ("_depth", "_index", "_known", "_name", "_result")

    def __init__(
        self,
        place: Place,
        owner: str,
        item: Expression,
        at: tuple[int, int],
        name: str,
        *,
        defines: bool,
    ) -> None:
        super().__init__(place, owner, (item,))
        self._depth, self._index = at
        self._name = name
        self._known = not defines
        self._result = Symbol(name) if defines else None

    @override
    def finish(self, machine: Registers, frame: Frame, values: list[Datum]) -> Datum:
        found: Any = frame
        for _ in range(self._depth):
            found = found[0]
        if self._known and found[self._index] is UNSET:
            raise Problem(f"{self._name} is set before it is defined", self.place)
        found[self._index] = values[0]
        return self._result


class SetGlobal(Gathering):
    """Gives a global variable a value."""

    __slots__ = ("_defines", "_variable")

    def __init__(
        self, place: Place, owner: str, item: Expression, variable: Variable, *, defines: bool
    ) -> None:
        super().__init__(place, owner, (item,))
        self._variable = variable
        self._defines = defines

    @override
    def finish(self, machine: Registers, frame: Frame, values: list[Datum]) -> Datum:
        variable = self._variable
        if not self._defines and variable.value is UNSET:
            raise Problem(f"{variable.name} is not defined", self.place)
        variable.value = values[0]
        return Symbol(variable.name) if self._defines else None
