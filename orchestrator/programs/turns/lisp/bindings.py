"""Forms that make variables: `define`, `set!`, `lambda`, `let` and its kin, `do`."""

from collections.abc import Generator, Iterator
from typing import Any

from orchestrator.programs.turns.lisp.branches import is_named, sequence
from orchestrator.programs.turns.lisp.calls import Code
from orchestrator.programs.turns.lisp.compiler import Compiler, Located, Rule
from orchestrator.programs.turns.lisp.data import EMPTY, Cons, Datum, Frame, Function, placed
from orchestrator.programs.turns.lisp.errors import Place, Problem
from orchestrator.programs.turns.lisp.expressions import Expression, Quick
from orchestrator.programs.turns.lisp.limits import CELL, FUNCTION
from orchestrator.programs.turns.lisp.names import Names
from orchestrator.programs.turns.lisp.printer import short
from orchestrator.programs.turns.lisp.variables import Let
from orchestrator.programs.turns.outcome import Symbol

_REST = "&rest"
# No program has this name by accident.
_LOOP = Symbol(" loop")


def define(compiler: Compiler, located: Located) -> Rule:
    """A definition: global, or in the body around it."""
    parts = located.form.tail
    target = parts.head
    if type(target) is Cons and target is not EMPTY:
        name = compiler.bindable(target.head, target.place)
        code = yield from _code(compiler, target.tail, parts.tail, located, name)
        item: Expression = _lambda_of(compiler, code, located)
    else:
        if parts.length > 2:
            raise Problem("define is (define name value) or (define (name x ...) form ...)")
        name = compiler.bindable(target, parts.place)
        value = parts.tail.head
        if type(value) is Cons and value.length > 2 and is_named(value.head, "lambda"):
            where = located._replace(form=value, place=parts.tail.place or located.place)
            code = yield from _code(compiler, value.tail.head, value.tail.tail, where, name)
            item = _lambda_of(compiler, code, where)
        else:
            item = yield compiler.part(value, parts.tail.place, located.names)
    names = located.names
    if names is not None and not names.defines(name):
        raise Problem("inside a function, define belongs to its body, not into a form of it")
    return compiler.assignment(name, item, located, defines=True)


def set_(compiler: Compiler, located: Located) -> Rule:
    """A new value of a variable."""
    parts = located.form.tail
    name = compiler.bindable(parts.head, parts.place)
    item = yield compiler.part(parts.tail.head, parts.tail.place, located.names)
    return compiler.assignment(name, item, located, defines=False)


def lambda_(compiler: Compiler, located: Located) -> Rule:
    """A function."""
    parts = located.form.tail
    code = yield from _code(compiler, parts.head, parts.tail, located, "lambda")
    return _lambda_of(compiler, code, located)


def _lambda_of(compiler: Compiler, code: Code, located: Located) -> Expression:
    """The expression whose value is a function; what it keeps alive is counted each time."""
    allowance = compiler.allowance
    names = located.names
    size = FUNCTION + (0 if names is None else CELL * names.size)

    def get(frame: Frame) -> Function:
        allowance.hold(size)
        return Function(code, frame)

    return Quick(located.place, located.owner, get)


def _code(
    compiler: Compiler, parameters: Datum, body: Cons, located: Located, name: str
) -> Generator[Any, Expression, Code]:
    """The code of a function with these parameters and this body."""
    if type(parameters) is Symbol:
        fixed: list[str] = []
        rest = [compiler.bindable(parameters, located.place)]
    elif type(parameters) is Cons:
        fixed, rest = _parameters(compiler, parameters)
    else:
        raise Problem(f"parameters are a list of symbols, and not {short(parameters)}")
    if body is EMPTY:
        raise Problem(f"the function {name} has no body")
    names = Names(located.names, name, fixed + rest)
    made, further = yield from scoped_body(compiler, body, names, located.place)
    source = Cons(Symbol("lambda"), Cons(parameters, body))
    return Code(name, source, len(fixed), rest=bool(rest), body=made, further=further)


def _parameters(compiler: Compiler, parameters: Cons) -> tuple[list[str], list[str]]:
    found: list[str] = []
    cell = parameters
    while cell.length and cell.head != _REST:
        found.append(compiler.bindable(cell.head, cell.place))
        cell = cell.tail
    rest = [compiler.bindable(each, cell.place) for each in cell.tail]
    if cell.length and len(rest) != 1:
        raise Problem("after &rest comes one parameter", cell.place)
    if len(set(found + rest)) < len(found + rest):
        raise Problem("two parameters have the same name", parameters.place)
    return found, rest


def scoped_body(
    compiler: Compiler, forms: Cons, names: Names, place: Place
) -> Generator[Any, Expression, tuple[Expression, int]]:
    """A body, and the number of its definitions, which become variables of its frame."""
    further = 0
    cells = [forms]
    while cells:
        cell = cells.pop()
        if not cell.length:
            continue
        cells.append(cell.tail)
        form = cell.head
        if type(form) is Cons and is_named(form.head, "begin"):
            cells.append(form.tail)
        elif type(form) is Cons and form.length > 2 and is_named(form.head, "define"):
            target = form.tail.head
            name = target.head if type(target) is Cons else target
            further += names.define(compiler.bindable(name, form.tail.place))
    made = yield from sequence(compiler, forms, Located(forms, place, names))
    return made, further


def bound_names(
    compiler: Compiler, form: Datum, place: Place | None, what: str
) -> Iterator[tuple[str, Cons, Place | None]]:
    """Names and the cells of their values. Raises: Problem."""
    if type(form) is not Cons:
        raise Problem(f"{what} are ((name value) …)", place)
    while form.length:
        pair = form.head
        if type(pair) is not Cons or pair.length != 2:
            raise Problem(f"{what} are ((name value) …), and not {short(pair)}", form.place)
        yield compiler.bindable(pair.head, pair.place), pair.tail, form.place
        form = form.tail


def let(compiler: Compiler, located: Located) -> Rule:
    """Variables and a body; with a name, a loop."""
    parts = located.form.tail
    if type(parts.head) is Symbol:
        return (yield from _named_let(compiler, located))
    bound = list(bound_names(compiler, parts.head, parts.place, "the variables of let"))
    different([name for name, _, _ in bound])
    items = []
    for _, cell, _ in bound:
        items.append((yield compiler.part(cell.head, cell.place, located.names)))
    names = Names(located.names, located.owner, [name for name, _, _ in bound])
    body, further = yield from scoped_body(compiler, parts.tail, names, located.place)
    return Let(located.place, located.owner, items, body, further)


def different(names: list[str]) -> None:
    """Raises: Problem if two names are the same."""
    if len(set(names)) < len(names):
        raise Problem("two variables have the same name")


def _named_let(compiler: Compiler, located: Located) -> Rule:
    """A function that its own body can call; it is called with the first values."""
    parts = located.form.tail
    place = located.place
    bound = list(bound_names(compiler, parts.tail.head, parts.tail.place, "the variables of let"))
    parameters = placed((Symbol(name) for name, _, _ in bound), place)
    function = Cons(
        Symbol("lambda"), Cons(parameters, parts.tail.tail, parts.tail.place), located.place
    )
    binding = placed((placed((parts.head, function), place),), place)
    inner = placed((Symbol("letrec"), binding, parts.head), place)
    values = EMPTY
    for _, cell, _ in reversed(bound):
        values = Cons(cell.head, values, cell.place)
    made: Expression = yield compiler.part(Cons(inner, values, place), place, located.names)
    return made


def let_in_order(compiler: Compiler, located: Located) -> Rule:
    """`let*`: one `let` in another."""
    parts = located.form.tail
    bound = list(bound_names(compiler, parts.head, parts.place, "the variables of let*"))
    if len(bound) < 2:
        made: Expression = yield compiler.part(
            Cons(Symbol("let"), parts, located.place), located.place, located.names
        )
        return made
    names = located.names
    items = []
    for name, cell, _ in bound:
        items.append((yield compiler.part(cell.head, cell.place, names)))
        names = Names(names, located.owner, [name])
    body, further = yield from scoped_body(compiler, parts.tail, names, located.place)  # type: ignore[arg-type]
    for item in reversed(items):
        body = Let(located.place, located.owner, (item,), body, further)
        further = 0
    return body


def letrec(compiler: Compiler, located: Located) -> Rule:
    """Variables whose values are defined at the beginning of the body."""
    parts = located.form.tail
    bound = list(bound_names(compiler, parts.head, parts.place, "the variables of letrec"))
    different([name for name, _, _ in bound])
    body = parts.tail
    for name, cell, place in reversed(bound):
        definition = placed((Symbol("define"), Symbol(name)), place)
        definition.tail.tail = Cons(cell.head, EMPTY, cell.place)
        definition.tail.length, definition.length = 2, 3
        body = Cons(definition, body, place)
    names = Names(located.names, located.owner)
    made, further = yield from scoped_body(compiler, body, names, located.place)
    return Let(located.place, located.owner, (), made, further)


def do(compiler: Compiler, located: Located) -> Rule:
    """`(do ((name first next) …) (test result …) form …)` as a named `let`."""
    parts = located.form.tail
    place = located.place
    variables, end = parts.head, parts.tail.head
    if type(variables) is not Cons or type(end) is not Cons or end is EMPTY:
        raise Problem("do is (do ((name first next) ...) (test value) form ...)")
    first, following = [], []
    for each in variables:
        if type(each) is not Cons or each.length not in (2, 3):
            raise Problem(f"a variable of do is (name first next), and not {short(each)}")
        first.append(placed((each.head, each.tail.head), place))
        following.append(each.tail.tail.head if each.length == 3 else each.head)
    again = placed((_LOOP, *following), place)
    result = Cons(Symbol("begin"), end.tail, place)
    body = Cons(Symbol("begin"), _joined(parts.tail.tail, again, place), place)
    test = placed((Symbol("if"), end.head, result, body), place)
    form = placed((Symbol("let"), _LOOP, placed(first, place), test), place)
    made: Expression = yield compiler.part(form, place, located.names)
    return made


def _joined(forms: Cons, last: Datum, place: Place) -> Cons:
    found = Cons(last, EMPTY, place)
    cells = []
    while forms.length:
        cells.append((forms.head, forms.place))
        forms = forms.tail
    for form, at in reversed(cells):
        found = Cons(form, found, at)
    return found
