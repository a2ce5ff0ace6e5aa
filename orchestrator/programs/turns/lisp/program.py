"""A Lisp program for a driver: what it is given, its run, and what it leaves behind."""

from collections.abc import Set

from orchestrator.programs.turns.lisp.builtins.library import BUILTINS
from orchestrator.programs.turns.lisp.builtins.primitive import FUNCTIONS
from orchestrator.programs.turns.lisp.compiler import Compiler
from orchestrator.programs.turns.lisp.data import DriverFunction, take_out
from orchestrator.programs.turns.lisp.definitions import Definitions, restore, stored
from orchestrator.programs.turns.lisp.errors import LispError, Problem
from orchestrator.programs.turns.lisp.forms import FORMS
from orchestrator.programs.turns.lisp.limits import Allowance, LispLimits
from orchestrator.programs.turns.lisp.machine import Machine
from orchestrator.programs.turns.lisp.printer import displayed
from orchestrator.programs.turns.lisp.reader import read
from orchestrator.programs.turns.outcome import Symbol
from orchestrator.programs.turns.programs import Program

_MOST_NAME = 1000


class LispProgram:
    """A program's text, with the operations that it may ask for and earlier definitions.

    `operations` and `session_api` are names of functions that the driver does; names of forms are
    left out, and other ones hide built-in functions. `environment` is the text of an earlier
    program's `definitions()`.
    """

    def __init__(
        self,
        text: str,
        *,
        operations: Set[str],
        session_api: Set[str] = frozenset(),
        environment: str = "",
        limits: LispLimits | None = None,
    ) -> None:
        self._text = text
        self._environment = environment
        self._allowance = Allowance(limits or LispLimits())
        asked = {name: DriverFunction(name) for name in (operations | session_api) - FORMS.keys()}
        # Builtins that ask their driver by their own name stay what they are.
        functions = {**asked, **BUILTINS}
        self._compiler = Compiler(FORMS, functions, self._allowance)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._allowance.output

    @property
    def steps(self) -> int:
        """Steps of the evaluator so far."""
        return self._allowance.steps

    @property
    def memory(self) -> int:
        """Bytes of all values that it made so far, as they are counted."""
        return self._allowance.memory

    def run(self) -> Program:
        """The program as a generator; it can be run once.

        A value that is a function becomes a symbol with its name. Raises: LispError;
        PolicyViolation and whatever else its driver throws into it.
        """
        yield from restore(self._environment, self._compiler)
        forms = yield from read(self._text, self._allowance.limits)
        expression = yield from self._compiler.sequence(forms)
        value = yield from Machine(self._allowance).run(expression)
        if type(value) in FUNCTIONS:
            return Symbol(displayed(value, _MOST_NAME, self._allowance))
        try:
            return (yield from take_out(value, self._allowance))
        except Problem as problem:
            raise LispError(problem.message, *expression.place) from None

    def definitions(self) -> Definitions:
        """The global definitions as text, also of a program that failed."""
        return stored(self._compiler, self._allowance.limits)
