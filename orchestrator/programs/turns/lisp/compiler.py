"""Compiles forms into expressions: names are looked up once, and mistakes are found early.

Nothing recurses: a rule is a generator that yields the parts that it needs compiled, and one loop
runs all rules with a stack.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from orchestrator.programs.turns.lisp import stackless
from orchestrator.programs.turns.lisp.builtins.primitive import Control, Primitive
from orchestrator.programs.turns.lisp.calls import Built, Call
from orchestrator.programs.turns.lisp.data import EMPTY, Cons, Datum, DriverFunction
from orchestrator.programs.turns.lisp.errors import LispError, Place, Problem
from orchestrator.programs.turns.lisp.expressions import (
    Branching,
    Either,
    Expression,
    InOrder,
    Quick,
)
from orchestrator.programs.turns.lisp.limits import Allowance
from orchestrator.programs.turns.lisp.names import TOP, Names
from orchestrator.programs.turns.lisp.printer import short
from orchestrator.programs.turns.lisp.stackless import MOST_NESTED, MOST_PARTS, Operand, Variable
from orchestrator.programs.turns.lisp.variables import SetGlobal, SetLocal
from orchestrator.programs.turns.outcome import Symbol
from orchestrator.programs.turns.programs import Breath

# Rules that wait for others; `let*` and quotes nest them more deeply than the text.
_MOST_WAITING = 2500
# Others may run after so many parts.
_AT_ONCE = 300
# And after so many forms of a program, because all of them may be short.
_FORMS_AT_ONCE = 100
_MOST_NAME = 1000


class Located(NamedTuple):
    """A form to compile, where it is, and the variables around it."""

    form: Cons
    place: Place
    names: Names | None

    @property
    def owner(self) -> str:
        """The function in which the form is."""
        return TOP if self.names is None else self.names.owner


Rule: TypeAlias = Generator[Any, Expression, Expression]


class Form(NamedTuple):
    """A special form: how it is written, its documentation, its rule, and how many parts it has."""

    signature: str
    doc: str
    rule: Callable[["Compiler", Located], Rule]
    least: int
    most: int | None = None

    @property
    def name(self) -> str:
        """The symbol that it begins with."""
        return self.signature[1:-1].split()[0]


class Compiler:
    """Compiles forms of one global environment."""

    def __init__(
        self,
        forms: Mapping[str, Form],
        functions: Mapping[str, Primitive | Control | DriverFunction],
        allowance: Allowance,
    ) -> None:
        self.allowance = allowance
        self.functions = functions
        self.variables: dict[str, Variable] = {}
        self._forms = forms

    def fresh(self) -> "Compiler":
        """A compiler of an environment without definitions."""
        return Compiler(self._forms, self.functions, self.allowance)

    def compile(self, form: Datum, place: Place) -> Generator[Breath, object, Expression]:
        """Compiles one form of the global environment. Raises: LispError."""
        waiting: list[Rule] = []
        parts = 0
        try:
            made = self.part(form, place, None)
            while True:
                if isinstance(made, Expression):
                    if not waiting:
                        return made
                    made = _next(waiting, made)
                else:
                    if len(waiting) > _MOST_WAITING:
                        raise Problem("the form is nested too deeply")
                    waiting.append(made)
                    made = _next(waiting, None)
                parts += 1
                if parts % _AT_ONCE == 0:
                    yield Breath()
        except Problem as problem:
            raise LispError(problem.message, *(problem.place or place)) from None

    def sequence(self, forms: Cons) -> Generator[Breath, object, Expression]:
        """Compiles all forms of a program. Raises: LispError."""
        items = []
        while forms.length:
            place = forms.place or (1, 1)
            items.append((yield from self.compile(forms.head, place)))
            forms = forms.tail
            if len(items) % _FORMS_AT_ONCE == 0:
                yield Breath()
        return self.in_order(items, (1, 1), TOP)

    def part(self, form: Datum, place: Place | None, names: Names | None) -> Expression | Rule:
        """A part of a form: compiled, or the rule that compiles it. Raises: Problem."""
        place = place or (1, 1)
        if type(form) is Symbol:
            return self._variable(form, place, names)
        if type(form) is not Cons or form is EMPTY:
            return self.constant(form, place, names)
        located = Located(form, place, names)
        if type(form.head) is Symbol and form.head in self._forms:
            return self._placed(self._special(located), place)
        return self._placed(self._call(located), place)

    def parts(
        self, forms: Cons, names: Names | None
    ) -> Generator[Any, Expression, list[Expression]]:
        """All parts of a form; a rule calls this by `yield from`."""
        made = []
        while forms.length:
            made.append((yield self.part(forms.head, forms.place, names)))
            forms = forms.tail
        return made

    @staticmethod
    def _placed(rule: Rule, place: Place) -> Rule:
        """The rule, whose problems get the form's place."""
        made: Expression | None = None
        try:
            while True:
                made = yield rule.send(made)  # type: ignore[arg-type]
        except StopIteration as end:
            found: Expression = end.value
            return found
        except Problem as problem:
            problem.place = problem.place or place
            raise

    def constant(self, value: Datum, place: Place | None, names: Names | None) -> Expression:
        """An expression that always has this value."""
        owner = TOP if names is None else names.owner
        get = stackless.constant(value)
        return Quick(place or (1, 1), owner, get, operand=Operand(is_local=False, content=value))

    def _variable(self, name: Symbol, place: Place, names: Names | None) -> Expression:
        owner = TOP if names is None else names.owner
        _check_name(name, place)
        found = None if names is None else names.find(name)
        if found is not None:
            depth, index, undefined = found
            get = stackless.local_value(depth, index)
            if undefined:
                get = stackless.defined_value(get, name, place)
            innermost = depth == 0 and not undefined
            operand = Operand(is_local=True, content=index) if innermost else None
            return Quick(place, owner, get, operand=operand)
        if name in self._forms:
            raise Problem(f"{name} is a form and no value: it is used as ({name} …)", place)
        if name in self.functions:
            return Quick(place, owner, stackless.constant(self.functions[name]))
        return Quick(place, owner, stackless.global_value(self.variable(name), place))

    def variable(self, name: str) -> Variable:
        """A global variable, which may have no value yet."""
        return self.variables.setdefault(str(name), Variable(str(name)))

    def bindable(self, name: Datum, place: Place | None, *, at_top: bool = False) -> str:
        """The name of a new variable. Raises: Problem if it can't be one."""
        if type(name) is not Symbol:
            raise Problem(f"a variable is a symbol, and not {short(name)}", place)
        _check_name(name, place)
        if name in self._forms:
            raise Problem(f"{name} is a form; a variable needs another name", place)
        if at_top and name in self.functions:
            raise Problem(f"{name} is built in; a definition needs another name", place)
        return str(name)

    def _special(self, located: Located) -> Rule:
        form = self._forms[located.form.head]
        given = located.form.length - 1
        if given < form.least or (form.most is not None and given > form.most):
            raise Problem(f"{form.name} is {form.signature}")
        return (yield from form.rule(self, located))

    def _call(self, located: Located) -> Rule:
        form, place, names = located
        head = form.head
        known = type(head) is Symbol and (names is None or names.find(head) is None)
        function = self.functions.get(head) if known else None
        if type(function) is Primitive:
            parts = yield from self.parts(form.tail, names)
            return self.built(function, parts, located)
        parts = yield from self.parts(form, names)
        return Call(place, located.owner, parts)

    def built(
        self, primitive: Primitive, parts: Sequence[Expression], located: Located
    ) -> Expression:
        """A call of a function that only computes."""
        owner = located.owner
        found = _quick(parts) if primitive.quick else None
        if found is None:
            call = stackless.caller(primitive, self.allowance)
            return Built(located.place, owner, call, parts)
        operands = [part.operand for part in parts if isinstance(part, Quick)]
        get = stackless.computed(primitive, found, operands, self.allowance, located.place)
        return Quick(located.place, owner, get, parts)

    def choice(
        self, test: Expression, then: Expression, other: Expression, located: Located
    ) -> Expression:
        """`if`."""
        parts = (test, then, other)
        found = _quick(parts)
        if found is None:
            return Branching(located.place, located.owner, *parts)
        return Quick(located.place, located.owner, stackless.choice(*found), parts)

    def either(
        self, first: Expression, second: Expression, located: Located, *, while_true: bool
    ) -> Expression:
        """`and` or `or` of two."""
        found = _quick((first, second))
        owner = located.owner
        if found is None:
            return Either(located.place, owner, first, second, while_true=while_true)
        get = stackless.either(*found, while_true=while_true)
        return Quick(located.place, owner, get, (first, second))

    def in_order(self, items: Sequence[Expression], place: Place, owner: str) -> Expression:
        """Expressions one after another; nil for none."""
        if not items:
            return Quick(place, owner, stackless.constant(None))
        return items[0] if len(items) == 1 else InOrder(place, owner, items)

    def assignment(
        self, name: str, item: Expression, located: Located, *, defines: bool
    ) -> Expression:
        """`define` and `set!`. Raises: Problem for a name that can't get a value."""
        names = located.names
        found = None if names is None else names.find(name)
        if found is not None:
            place, owner = located.place, located.owner
            return SetLocal(place, owner, item, found[:2], name, defines=defines)
        self.bindable(Symbol(name), located.place, at_top=True)
        variable = self.variable(name)
        return SetGlobal(located.place, located.owner, item, variable, defines=defines)


def _check_name(name: Symbol, place: Place | None) -> None:
    """Limits names, because each use looks at the whole name. Raises: Problem."""
    if len(name) > _MOST_NAME:
        raise Problem(f"a variable has at most {_MOST_NAME} characters", place)


def _quick(parts: Sequence[Expression]) -> list[stackless.Getter] | None:
    """How to get the parts of an expression without a stack; None if it would be too large."""
    found = [part.get for part in parts if part.get is not None]
    if len(found) < len(parts) or sum(part.parts for part in parts) >= MOST_PARTS:
        return None
    return found if max((part.nested for part in parts), default=0) < MOST_NESTED else None


def _next(waiting: list[Rule], made: Expression | None) -> Expression | Rule:
    """What the innermost rule needs next; or what it has made, if it has ended."""
    try:
        wanted: Expression | Rule = waiting[-1].send(made)  # type: ignore[arg-type]
    except StopIteration as end:
        waiting.pop()
        found: Expression = end.value
        return found
    return wanted
