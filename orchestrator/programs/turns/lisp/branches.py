"""Forms that choose: `if`, `cond`, `case`, `when`, `unless`, `and`, `or`."""

from collections.abc import Generator, Hashable
from typing import Any

from orchestrator.programs.turns.lisp.compiler import Compiler, Located, Rule
from orchestrator.programs.turns.lisp.data import EMPTY, Cons, Datum, placed
from orchestrator.programs.turns.lisp.errors import Place, Problem
from orchestrator.programs.turns.lisp.expressions import CaseBranches, Expression
from orchestrator.programs.turns.lisp.keys import table_key
from orchestrator.programs.turns.lisp.printer import short
from orchestrator.programs.turns.outcome import Symbol

# No program has this name by accident.
_TEST = Symbol(" test")


def if_(compiler: Compiler, located: Located) -> Rule:
    """One of two forms."""
    test, then, *others = yield from compiler.parts(located.form.tail, located.names)
    other = others[0] if others else compiler.constant(None, located.place, located.names)
    return compiler.choice(test, then, other, located)


def cond(compiler: Compiler, located: Located) -> Rule:
    """The branches are compiled in order and connected from the last to the first."""
    names = located.names
    cells = located.form.tail
    made: list[tuple[Expression, Expression | None]] = []
    found = compiler.constant(None, located.place, names)
    while cells.length:
        clause, at = _clause(cells, "cond")
        if is_named(clause.head, "else"):
            if cells.length > 1:
                raise Problem("else is the last clause of cond", at.place)
            found = yield from sequence(compiler, clause.tail, at._replace(names=names))
            break
        if clause.length > 1 and is_named(clause.tail.head, "=>"):
            found = yield compiler.part(_receiving(clause, cells.tail, at.place), at.place, names)
            break
        test = yield compiler.part(clause.head, clause.place, names)
        then = None
        if clause.length > 1:
            then = yield from sequence(compiler, clause.tail, at._replace(names=names))
        made.append((test, then))
        cells = cells.tail
    for test, then in reversed(made):
        if then is None:
            found = compiler.either(test, found, located, while_true=False)
        else:
            found = compiler.choice(test, then, found, located)
    return found


def _clause(cells: Cons, form: str) -> tuple[Cons, Located]:
    """The first clause. Raises: Problem if it is none."""
    clause, place = cells.head, cells.place or (1, 1)
    if type(clause) is not Cons or clause is EMPTY:
        raise Problem(f"a clause of {form} is (test form …), and not {short(clause)}", place)
    return clause, Located(clause, place, None)


def _receiving(clause: Cons, others: Cons, place: Place) -> Cons:
    """`(test => function)` and the clauses after it, as a form with a variable."""
    if clause.length != 3:
        raise Problem("a clause with => is (test => function)", place)
    call = placed((clause.tail.tail.head, _TEST), clause.tail.tail.place)
    other = Cons(Symbol("cond"), others, place)
    binding = Cons(_TEST, Cons(clause.head, EMPTY, clause.place), place)
    inner = placed((Symbol("if"), _TEST, call, other), place)
    return placed((Symbol("let"), placed((binding,), place), inner), place)


def case(compiler: Compiler, located: Located) -> Rule:
    """A branch by a constant."""
    parts = located.form.tail
    names = located.names
    key = yield compiler.part(parts.head, parts.place, names)
    branches: dict[Hashable, Expression] = {}
    other = compiler.constant(None, located.place, names)
    cells = parts.tail
    while cells.length:
        clause, at = _clause(cells, "case")
        body = yield from sequence(compiler, clause.tail, at._replace(names=names))
        if is_named(clause.head, "else"):
            if cells.length > 1:
                raise Problem("else is the last clause of case", at.place)
            other = body
        elif type(clause.head) is not Cons:
            raise Problem("a clause of case is ((constant …) form …)", at.place)
        else:
            for constant in clause.head:
                of_constant = table_key(constant)
                if of_constant is None:
                    raise Problem("a constant of case is no list", at.place)
                branches.setdefault(of_constant, body)
        cells = cells.tail
    return CaseBranches(located.place, located.owner, key, branches, other)


def when(compiler: Compiler, located: Located) -> Rule:
    """`when` and `unless`."""
    parts = located.form.tail
    test = yield compiler.part(parts.head, parts.place, located.names)
    body = yield from sequence(compiler, parts.tail, located)
    nothing = compiler.constant(None, located.place, located.names)
    if located.form.head == "unless":
        return compiler.choice(test, nothing, body, located)
    return compiler.choice(test, body, nothing, located)


def and_or(compiler: Compiler, located: Located) -> Rule:
    """`and` and `or`."""
    while_true = located.form.head == "and"
    parts = yield from compiler.parts(located.form.tail, located.names)
    if not parts:
        return compiler.constant(while_true, located.place, located.names)
    found = parts[-1]
    for part in reversed(parts[:-1]):
        found = compiler.either(part, found, located, while_true=while_true)
    return found


def sequence(
    compiler: Compiler, forms: Cons, located: Located
) -> Generator[Any, Expression, Expression]:
    """Forms one after another, without definitions of their own."""
    parts = yield from compiler.parts(forms, located.names)
    return compiler.in_order(parts, located.place, located.owner)


def is_named(form: Datum, name: str) -> bool:
    """Whether a form is the symbol with that name."""
    return type(form) is Symbol and form == name
