"""JSON as programs have it: lists for arrays, and lists of pairs for objects. Pure."""

import json
from typing import Any

from orchestrator.programs.turns.outcome import Value

_MOST_DEPTH = 32


def from_json(form: Any, depth: int = 0) -> Value:
    """The value of a parsed JSON text. Raises: ValueError if it is nested too deep."""
    if depth > _MOST_DEPTH:
        raise ValueError(f"has more than {_MOST_DEPTH} levels")
    if isinstance(form, list):
        return tuple(from_json(each, depth + 1) for each in form)
    if isinstance(form, dict):
        return tuple((name, from_json(each, depth + 1)) for name, each in form.items())
    value: Value = form
    return value


def parsed(text: str) -> Value:
    """The value of a JSON text. Raises: ValueError."""
    try:
        return from_json(json.loads(text, parse_constant=_refuse))
    except RecursionError:
        raise ValueError(f"has more than {_MOST_DEPTH} levels") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
