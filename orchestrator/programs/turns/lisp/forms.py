"""All special forms by their names, and the rules of those that neither choose nor bind."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from orchestrator.programs.turns.lisp.bindings import (
    bound_names,
    define,
    different,
    do,
    lambda_,
    let,
    let_in_order,
    letrec,
    scoped_body,
    set_,
)
from orchestrator.programs.turns.lisp.branches import and_or, case, cond, if_, sequence, when
from orchestrator.programs.turns.lisp.compiler import Compiler, Form, Located, Rule
from orchestrator.programs.turns.lisp.data import EMPTY, Cons
from orchestrator.programs.turns.lisp.driver_forms import (
    Evaluation,
    Memo,
    Subevaluation,
    WithBudget,
)
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.names import Names
from orchestrator.programs.turns.lisp.templates import quasiquote
from orchestrator.programs.turns.lisp.variables import Let


def _quote(compiler: Compiler, located: Located) -> Rule:
    value = located.form.tail.head
    return compiler.constant(value, located.place, located.names)
    yield


def _begin(compiler: Compiler, located: Located) -> Rule:
    return (yield from sequence(compiler, located.form.tail, located))


def _quasiquote(compiler: Compiler, located: Located) -> Rule:
    parts = located.form.tail
    return (yield from quasiquote(compiler, parts.head, located))


def _misplaced(_compiler: Compiler, located: Located) -> Rule:
    raise Problem(f"{located.form.head} belongs into a quasiquote")
    yield


def _with_budget(compiler: Compiler, located: Located) -> Rule:
    parts = located.form.tail
    bound = list(bound_names(compiler, parts.head, parts.place, "the limits of with-budget"))
    different([name for name, _, _ in bound])
    amounts = []
    for name, cell, _ in bound:
        amounts.append((name, (yield compiler.part(cell.head, cell.place, located.names))))
    names = Names(located.names, located.owner)
    body, further = yield from scoped_body(compiler, parts.tail, names, located.place)
    body = Let(located.place, located.owner, (), body, further)
    return WithBudget(located.place, located.owner, amounts, body)


def _subeval(compiler: Compiler, located: Located) -> Rule:
    """Options are data if they begin with a list; otherwise they are evaluated."""
    parts = located.form.tail
    program = yield compiler.part(parts.head, parts.place, located.names)
    options = parts.tail.head if parts.length == 2 else EMPTY
    if type(options) is Cons and (options is EMPTY or type(options.head) is Cons):
        given = compiler.constant(options, parts.tail.place, located.names)
    else:
        given = yield compiler.part(options, parts.tail.place, located.names)
    return Subevaluation(located.place, located.owner, compiler, program, given)


def _eval(compiler: Compiler, located: Located) -> Rule:
    parts = located.form.tail
    form = yield compiler.part(parts.head, parts.place, located.names)
    return Evaluation(located.place, located.owner, compiler, form)


def _memo(compiler: Compiler, located: Located) -> Rule:
    parts = located.form.tail
    key = yield compiler.part(parts.head, parts.place, located.names)
    names = Names(located.names, located.owner)
    body, further = yield from scoped_body(compiler, parts.tail, names, located.place)
    body = Let(located.place, located.owner, (), body, further)
    return Memo(located.place, located.owner, key, body, parts.tail)


_LIST = (
    Form(
        "(define name value)",
        "Gives a name a value; (define (f x) form ...) a function.",
        define,
        2,
    ),
    Form("(set! name value)", "Changes a variable.", set_, 2, 2),
    Form(
        "(lambda (x ...) form ...)", "A function; the parameters may end with &rest xs.", lambda_, 2
    ),
    Form("(let ((name value) ...) form ...)", "Variables; with a name first, a loop.", let, 2),
    Form("(let* ((name value) ...) form ...)", "Each value may use those before.", let_in_order, 2),
    Form("(letrec ((name value) ...) form ...)", "Functions that use each other.", letrec, 2),
    Form("(if test then [else])", "One of two; #f and nil are false.", if_, 2, 3),
    Form(
        "(cond (test form ...) ... (else form ...))", "The first that holds; => passes it.", cond, 0
    ),
    Form("(case key ((value ...) form ...) ... (else form ...))", "By a constant.", case, 1),
    Form("(when test form ...)", "The forms if it holds.", when, 1),
    Form("(unless test form ...)", "The forms if it does not hold.", when, 1),
    Form("(begin form ...)", "One after another; the last one's value.", _begin, 0),
    Form("(do ((name first next) ...) (test value) form ...)", "A loop.", do, 2),
    Form("(and form ...)", "The first false value, or the last one.", and_or, 0),
    Form("(or form ...)", "The first true value, or the last one.", and_or, 0),
    Form("(quote form)", "The form itself as data: 'form.", _quote, 1, 1),
    Form("(quasiquote form)", "Data with values in it, after a backquote.", _quasiquote, 1, 1),
    Form("(unquote form)", "A value in a quasiquote: ,form.", _misplaced, 1, 1),
    Form("(unquote-splicing form)", "A list's elements in a quasiquote: ,@form.", _misplaced, 1, 1),
    Form(
        "(with-budget ((kind n) ...) form ...)",
        "The forms within a smaller budget.",
        _with_budget,
        2,
    ),
    Form(
        "(subeval program [options])", "A text or form, apart, with less allowed.", _subeval, 1, 2
    ),
    Form("(eval form)", "The value of a form, among the global variables.", _eval, 1, 1),
    Form("(memo key form ...)", "The value that is known for the key, or the forms'.", _memo, 2),
)
FORMS: Final[Mapping[str, Form]] = MappingProxyType({form.name: form for form in _LIST})
