"""Forms that ask their driver: `with-budget`, `subeval`, `eval` and `memo`."""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from orchestrator.programs.turns.lisp.builtins.controls import digest
from orchestrator.programs.turns.lisp.builtins.primitive import wrong
from orchestrator.programs.turns.lisp.data import Cons, Datum, Frame, chain, take_out
from orchestrator.programs.turns.lisp.errors import Place, Problem
from orchestrator.programs.turns.lisp.expressions import Expression, Registers
from orchestrator.programs.turns.lisp.limits import CELL, FORM
from orchestrator.programs.turns.lisp.machine import Evaluate, Guided, Scoped
from orchestrator.programs.turns.lisp.reader import read
from orchestrator.programs.turns.outcome import Symbol
from orchestrator.programs.turns.programs import Breath, Enter, Operation

if TYPE_CHECKING:
    from orchestrator.programs.turns.lisp.compiler import Compiler

# How many characters are read, and elements of lists compiled, for one step.
_CHARACTERS = 4
_ELEMENTS = 4

Steps = Generator[Any, Datum, Datum]


class WithBudget(Guided):
    """`(with-budget ((kind n) …) form …)`: the driver counts its budget until it ends."""

    __slots__ = ("_amounts", "_body")

    def __init__(
        self,
        place: Place,
        owner: str,
        amounts: Sequence[tuple[str, Expression]],
        body: Expression,
    ) -> None:
        super().__init__(place, owner)
        self._amounts = amounts
        self._body = body

    @override
    def steps(self, machine: Registers, frame: Frame) -> Steps:
        limits: list[Datum] = []
        for kind, amount in self._amounts:
            value = yield Evaluate(amount, frame)
            if type(value) not in (int, float) or value < 0:
                raise wrong("with-budget", f"a number of {kind} from 0 on", value)
            limits.append(chain([Symbol(kind), value]))
        return (yield Scoped(Enter("with-budget", tuple(limits)), self._body, frame))


class Subevaluation(Guided):
    """`(subeval program options)`: a program apart, without the definitions of this one."""

    __slots__ = ("_compiler", "_options", "_program")

    def __init__(
        self,
        place: Place,
        owner: str,
        compiler: "Compiler",
        program: Expression,
        options: Expression,
    ) -> None:
        super().__init__(place, owner)
        self._compiler = compiler
        self._program = program
        self._options = options

    @override
    def steps(self, machine: Registers, frame: Frame) -> Steps:
        program = yield Evaluate(self._program, frame)
        options = yield Evaluate(self._options, frame)
        if type(options) is not Cons:
            raise wrong("subeval", "a list of options", options)
        for option in options:
            if type(option) is not Cons or type(option.head) is not Symbol:
                raise wrong("subeval", "options like (allow world.read)", option)
        inner = _Apart(self.place, self.owner, self._compiler.fresh(), program)
        return (yield Scoped(Enter("subeval", tuple(options)), inner, None))


class _Apart(Guided):
    """A program as a text or a form, in an environment of its own."""

    __slots__ = ("_compiler", "_program")

    def __init__(self, place: Place, owner: str, compiler: "Compiler", program: Datum) -> None:
        super().__init__(place, owner)
        self._compiler = compiler
        self._program = program

    @override
    def steps(self, machine: Registers, frame: Frame) -> Steps:
        if type(self._program) is str:
            machine.allowance.spend(len(self._program) // _CHARACTERS)
            machine.allowance.hold(len(self._program) * FORM)
            forms = yield from read(self._program, machine.allowance.limits)
            expression = yield from self._compiler.sequence(forms)
        else:
            yield from _count(machine, self._program)
            expression = yield from self._compiler.compile(
                self._program, _place(self._program, self.place)
            )
        return Evaluate(expression, None)


class Evaluation(Guided):
    """`(eval form)`: the form is compiled and evaluated, once the driver has allowed it."""

    __slots__ = ("_compiler", "_form")

    def __init__(self, place: Place, owner: str, compiler: "Compiler", form: Expression) -> None:
        super().__init__(place, owner)
        self._compiler = compiler
        self._form = form

    @override
    def steps(self, machine: Registers, frame: Frame) -> Steps:
        form = yield Evaluate(self._form, frame)
        yield from _count(machine, form)
        yield Operation("eval", (form,))
        expression = yield from self._compiler.compile(form, _place(form, self.place))
        return Evaluate(expression, None)


class Memo(Guided):
    """`(memo key form …)`: the forms are evaluated only if the driver has no value for the key."""

    __slots__ = ("_body", "_forms", "_key")

    def __init__(
        self, place: Place, owner: str, key: Expression, body: Expression, forms: Cons
    ) -> None:
        super().__init__(place, owner)
        self._key = key
        self._body = body
        self._forms = forms

    @override
    def steps(self, machine: Registers, frame: Frame) -> Steps:
        key = yield Evaluate(self._key, frame)
        name = yield from digest(machine.allowance, key, self._forms)
        known = yield Operation("memo", (name,))
        if known is not None:
            if type(known) is not Cons or known.length != 1:
                raise Problem("the answer to memo has no value")
            return known.head
        value = yield Evaluate(self._body, frame)
        yield Operation("memo", (name, value))
        return value


def _place(form: Datum, place: Place) -> Place:
    """The place where a form was read; the other one if it was made."""
    return form.place or place if type(form) is Cons else place


def _count(machine: Registers, form: Datum) -> Generator[Breath, object, None]:
    """Counts what it costs to compile a form. Raises: Problem."""
    before = machine.allowance.memory
    yield from take_out(form, machine.allowance)
    machine.allowance.spend((machine.allowance.memory - before) // CELL * _ELEMENTS)
