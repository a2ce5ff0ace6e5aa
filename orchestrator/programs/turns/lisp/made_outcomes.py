"""Outcomes that programs make: their members are checked."""

from collections.abc import Sequence
from typing import Any

from orchestrator.programs.turns.lisp.data import EMPTY, Cons, Datum
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.outcome import (
    MEMBERS,
    NEED_TYPES,
    Metadata,
    Outcome,
    Symbol,
)

_REASONS = ("budget", "max-iterations")
_INTEGERS = ("iterations", "cycle_length", "tokens", "cost_microdollars", "time_ms")
_TEXTS = ("description", "message", "error_type", "signature")


def made(tag: str, *members: Datum) -> Outcome:
    """An outcome of a program. Raises: Problem if a member can't be one."""
    return outcome_of([Symbol(tag), *members])


def outcome_of(items: Sequence[Datum]) -> Outcome:
    """The outcome that is written as `#outcome(tag member …)`.

    A list `(metadata (name value) …)` may follow. Raises: Problem.
    """
    tag = items[0] if items else None
    if type(tag) is not Symbol or tag not in MEMBERS:
        raise Problem(f"an outcome is one of {', '.join(MEMBERS)}")
    names = MEMBERS[tag]  # type: ignore[index]
    values = items[1 : len(names) + 1]
    further = items[len(names) + 1 :]
    if len(values) < len(names) or len(further) > 1:
        raise Problem(f"an outcome {tag} has {' '.join(names)}")
    checked = tuple(_member(name, value) for name, value in zip(names, values, strict=True))
    metadata = _metadata(further[0]) if further else Metadata()
    return Outcome(str(tag), checked, metadata)  # type: ignore[arg-type]


def _member(name: str, value: Datum) -> Datum:
    if name in _INTEGERS and type(value) is not int:
        raise Problem(f"{name} must be an integer")
    if name in _TEXTS and type(value) is not str:
        raise Problem(f"{name} must be a string")
    if name == "reason":
        return _one_of(name, value, _REASONS)
    if name == "need_type":
        return _one_of(name, value, NEED_TYPES)
    if name in ("proposals", "signatures", "stacktrace"):
        if type(value) is not Cons:
            raise Problem(f"{name} must be a list")
        if name != "proposals" and not all(type(each) is str for each in value):
            raise Problem(f"{name} must be a list of strings")
    return value


def _one_of(name: str, value: Datum, known: Sequence[str]) -> str:
    if type(value) not in (str, Symbol) or value not in known:
        raise Problem(f"{name} must be one of {', '.join(known)}")
    return str(value)


def _metadata(form: Datum) -> Metadata:
    found: dict[str, Any] = {}
    pairs = list(form.tail) if type(form) is Cons and form.head == "metadata" else [EMPTY]
    for pair in pairs:
        if type(pair) is not Cons or pair.length != 2 or pair.head not in Metadata.__slots__:
            raise Problem(f"metadata has {' '.join(Metadata.__slots__)}")
        found[pair.head] = _member(pair.head, pair.tail.head)
    return Metadata(**found)
