"""`quasiquote`: data with the values of forms in it."""

from orchestrator.programs.turns.lisp.builtins.library import BUILTINS
from orchestrator.programs.turns.lisp.builtins.primitive import Primitive
from orchestrator.programs.turns.lisp.compiler import Compiler, Located, Rule
from orchestrator.programs.turns.lisp.data import EMPTY, Cons, Datum
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.expressions import Expression, Quick
from orchestrator.programs.turns.outcome import Symbol

# How each mark changes the number of quasiquotes around what follows it.
_DEEPER = {"quasiquote": 1, "unquote": -1, "unquote-splicing": -1}


def quasiquote(compiler: Compiler, template: Datum, located: Located, depth: int = 1) -> Rule:
    """The expression of a template in so many quasiquotes; each unquote ends one."""
    names = located.names
    if type(template) is not Cons or template is EMPTY:
        return compiler.constant(template, located.place, names)
    mark = _mark(template)
    if mark == "unquote" and depth == 1:
        made: Expression = yield compiler.part(template.tail.head, template.tail.place, names)
        return made
    if mark == "unquote-splicing" and depth == 1:
        raise Problem(",@ belongs into a list")
    depth += _DEEPER.get(mark, 0)
    lists: list[Expression] = []
    elements: list[Expression] = []  # those after the last list that is spliced in
    cell = template
    while cell.length:
        item = cell.head
        if depth == 1 and type(item) is Cons and _mark(item) == "unquote-splicing":
            spliced: Expression = yield compiler.part(item.tail.head, item.tail.place, names)
            lists += [_call(compiler, "list", elements, located), spliced]
            elements = []
        else:
            where = located._replace(place=cell.place or located.place)
            elements.append((yield quasiquote(compiler, item, where, depth)))
        cell = cell.tail
    if lists:
        parts = [*lists, _call(compiler, "list", elements, located)]
        return _call(compiler, "append", parts, located)
    if all(map(_is_data, elements)):
        return compiler.constant(template, located.place, names)
    return _call(compiler, "list", elements, located)


def _mark(form: Cons) -> str:
    """What a form of two begins with, if it may be written as a mark."""
    return str(form.head) if form.length == 2 and type(form.head) is Symbol else ""


def _is_data(element: Expression) -> bool:
    if not isinstance(element, Quick) or element.operand is None:
        return False
    return not element.operand.is_local


def _call(compiler: Compiler, name: str, parts: list[Expression], located: Located) -> Expression:
    function = BUILTINS[name]
    assert isinstance(function, Primitive)  # noqa: S101
    return compiler.built(function, parts, located)
