"""A session's definitions as text: what one program has defined, for the next one."""

from collections.abc import Generator
from dataclasses import replace
from typing import NamedTuple

from orchestrator.programs.turns.lisp.builtins.primitive import FUNCTIONS
from orchestrator.programs.turns.lisp.compiler import Compiler
from orchestrator.programs.turns.lisp.data import Cons, Datum, Function, chain, outward
from orchestrator.programs.turns.lisp.errors import LispError, Place, Problem
from orchestrator.programs.turns.lisp.limits import FORM, Allowance, LispLimits
from orchestrator.programs.turns.lisp.printer import written
from orchestrator.programs.turns.lisp.reader import read
from orchestrator.programs.turns.lisp.stackless import UNSET
from orchestrator.programs.turns.outcome import Symbol
from orchestrator.programs.turns.programs import Breath

# While definitions are written, they may take so many times their text as memory.
_FACTOR = 64


class Definitions(NamedTuple):
    """Definitions as text, and the names of those that can't be kept."""

    text: str
    dropped: tuple[str, ...]


def stored(compiler: Compiler, limits: LispLimits) -> Definitions:
    """The definitions that can be kept, in the order of their first use.

    Left out are functions that use variables of other functions, values with functions in them, and
    what does not fit.
    """
    most = limits.stored_characters
    allowance = Allowance(replace(limits, memory_bytes=most * _FACTOR))
    lines: list[str] = []
    dropped = []
    left = most
    for name, variable in compiler.variables.items():
        if variable.value is UNSET:
            continue
        try:
            line = f"{_definition(name, variable.value, allowance, left)}\n"
        except Problem:
            dropped.append(name)
        else:
            if len(line) > left:
                dropped.append(name)
            else:
                lines.append(line)
                left -= len(line)
    return Definitions("".join(lines), tuple(dropped))


def _definition(name: str, value: Datum, allowance: Allowance, most: int) -> str:
    """Raises: Problem if it can't be kept."""
    if type(value) is Function:
        if value.frame is not None:
            raise Problem(f"{name} uses variables of another function")
        form: Datum = value.code.source
    elif type(value) in FUNCTIONS:
        form = Symbol(value.name)
    else:
        form = chain([Symbol("quote"), value])
    outward(form, allowance)  # counts the form, and refuses it if it is nested too deeply
    return written(chain([Symbol("define"), Symbol(name), form]), most, allowance)


def restore(text: str, compiler: Compiler) -> Generator[Breath, object, None]:
    """Defines what was stored; names that are built in by now are left out. Raises: LispError."""
    limits = compiler.allowance.limits
    cells = yield from read(text, replace(limits, program_characters=limits.stored_characters))
    try:
        compiler.allowance.hold(FORM * len(text))
    except Problem as problem:
        raise LispError(f"the stored definitions: {problem.message}", 1, 1) from None
    while cells.length:
        form, place = cells.head, cells.place or (1, 1)
        if type(form) is not Cons or form.length != 3 or form.head != "define":
            raise LispError("the stored definitions have something else", *place)
        name, item = form.tail.head, form.tail.tail.head
        if type(name) is Symbol and name not in compiler.functions:
            value = yield from _value(compiler, item, place)
            if value is not UNSET:
                compiler.variable(name).value = value
        cells = cells.tail


def _value(compiler: Compiler, item: Datum, place: Place) -> Generator[Breath, object, Datum]:
    """The value of a stored definition; `UNSET` for a function that is not there any more."""
    if type(item) is Symbol:
        return compiler.functions.get(item, UNSET)
    if type(item) is Cons and item.length and item.head in ("quote", "lambda"):
        expression = yield from compiler.compile(item, place)
        if expression.get is not None:
            return expression.get(None)
    raise LispError("the stored definitions have something else", *place)
