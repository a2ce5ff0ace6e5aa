"""The forms and functions of the language, for documents."""

from typing import NamedTuple

from orchestrator.programs.turns.lisp.builtins.library import BUILTINS
from orchestrator.programs.turns.lisp.forms import FORMS


class Described(NamedTuple):
    """A form or a built-in function: how it is written, and what it does."""

    name: str
    signature: str
    doc: str


def forms() -> tuple[Described, ...]:
    """All special forms."""
    return tuple(Described(name, form.signature, form.doc) for name, form in FORMS.items())


def builtins() -> tuple[Described, ...]:
    """All built-in functions."""
    return tuple(Described(name, each.signature, each.doc) for name, each in BUILTINS.items())
