"""Built-in functions as values: name, signature, documentation, and the checks of arguments."""

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias

from orchestrator.programs.turns.lisp.data import Cons, Datum, DriverFunction, Function, kind
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import Allowance
from orchestrator.programs.turns.lisp.printer import short
from orchestrator.programs.turns.outcome import Outcome, Symbol
from orchestrator.programs.turns.programs import Breath, Operation

# Words of signatures that say what an argument must be; other words take any value.
_TEXT = ((str,), "a string")
_WHOLE = ((int,), "an integer")
_WORDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    **dict.fromkeys(("text", "part", "separator", "old", "new"), _TEXT),
    **dict.fromkeys(("n", "start", "end", "step", "length"), _WHOLE),
    "number": ((int, float), "a number"),
    "list": ((Cons,), "a list"),
    "dictionary": ((Cons,), "a list"),
    "symbol": ((Symbol,), "a symbol"),
    "outcome": ((Outcome,), "an outcome"),
}


class Applied(NamedTuple):
    """A function with its arguments, as a control function asks for it."""

    function: Datum
    arguments: list[Datum]


# What a control function does: it yields functions to apply and operations to ask for, receives
# their values, and returns its value, or a function to apply in its place. At a breath, others run.
Steps: TypeAlias = Generator[Applied | Operation | Breath, Any, Datum]


class _Builtin:
    """The common part of both kinds of built-in functions.

    In a signature like `(nth n list)` or `(f a [b] text ...)`, arguments in brackets may be left
    out, and the last one before dots may be given any number of times, or not at all.
    """

    __slots__ = ("_kinds", "_last", "_unchecked", "doc", "least", "most", "name", "signature")

    def __init__(self, signature: str, doc: str) -> None:
        self.signature = signature
        self.doc = doc
        self.name, *words = signature[1:-1].split()
        repeated = words[-2:-1] if words[-1:] == ["..."] else []
        fixed = words[:-2] if repeated else words
        self.least = sum(word[0] != "[" for word in fixed)
        self.most = None if repeated else len(fixed)
        checks = [_WORDS.get(word.strip("[]")) for word in fixed]
        self._kinds = checks
        self._last = _WORDS.get(repeated[0]) if repeated else None
        self._unchecked = not any(checks) and self._last is None

    def takes(self, count: int) -> bool:
        """Whether that many arguments of any kind are valid, so that none needs a check."""
        enough = self.least <= count and (self.most is None or count <= self.most)
        return enough and self._unchecked

    def checked(self, arguments: list[Datum]) -> None:
        """Raises: Problem for a wrong number of arguments, or an argument of a wrong type."""
        count = len(arguments)
        if count < self.least or (self.most is not None and count > self.most):
            raise Problem(f"{self.name} is {self.signature}; it was given {counted(count)}")
        if self._unchecked:
            return
        for check, argument in zip(self._kinds, arguments, strict=False):
            if check is not None and type(argument) not in check[0]:
                raise wrong(self.name, check[1], argument)
        if self._last is not None:
            for argument in arguments[len(self._kinds) :]:
                if type(argument) not in self._last[0]:
                    raise wrong(self.name, self._last[1], argument)


class Primitive(_Builtin):
    """A built-in function that only computes.

    `function` takes the allowance and the arguments. It is `quick` if it takes about the same time
    for all arguments.
    """

    __slots__ = ("function", "quick")

    def __init__(
        self, signature: str, doc: str, function: Callable[..., Datum], *, quick: bool = False
    ) -> None:
        super().__init__(signature, doc)
        self.function = function
        self.quick = quick

    def call(self, allowance: Allowance, arguments: list[Datum]) -> Datum:
        """Raises: Problem."""
        self.checked(arguments)
        return self.function(allowance, *arguments)


class Control(_Builtin):
    """A built-in function that applies functions, asks for operations, or may take long."""

    __slots__ = ("function",)

    def __init__(self, signature: str, doc: str, function: Callable[..., Steps]) -> None:
        super().__init__(signature, doc)
        self.function = function

    def begin(self, allowance: Allowance, arguments: list[Datum]) -> Steps:
        """Raises: Problem."""
        self.checked(arguments)
        return self.function(allowance, *arguments)


FUNCTIONS: Final = (Function, DriverFunction, Primitive, Control)


def wrong(name: str, needed: str, given: Datum) -> Problem:
    """The problem that a function was given a wrong argument."""
    return Problem(f"{name} needs {needed}, not {kind(given)}: {short(given)}")


def counted(count: int) -> str:
    """A number of arguments in words."""
    return "1 argument" if count == 1 else f"{count} arguments"
