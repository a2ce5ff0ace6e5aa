"""Values of programs as JSON text, which tells symbols from texts. Pure.

Values that leave a program have limited depth, so these functions call themselves.
"""

import json
from typing import Any

from orchestrator.programs.turns.outcome import Metadata, Outcome, Symbol, Value


def to_text(value: Value) -> str:
    """The value as one line of JSON; equal values have equal texts."""
    return json_text(_stored(value))


def json_text(form: Any) -> str:
    """A value's JSON form on one line."""
    return json.dumps(form, separators=(",", ":"))


def from_text(text: str) -> Value:
    """The value of such a text."""
    return _restored(json.loads(text))


def _stored(value: Value) -> Any:
    if isinstance(value, Symbol):
        return {"symbol": str(value)}
    if isinstance(value, tuple):
        return [_stored(each) for each in value]
    if isinstance(value, Outcome):
        members = [_stored(each) for each in value.members]
        return {"outcome": value.tag, "members": members, "metadata": value.metadata.json()}
    return value


def _restored(form: Any) -> Value:
    if isinstance(form, list):
        return tuple(_restored(each) for each in form)
    if not isinstance(form, dict):
        plain: Value = form
        return plain
    if "symbol" in form:
        return Symbol(form["symbol"])
    members = tuple(_restored(each) for each in form["members"])
    return Outcome(form["outcome"], members, Metadata(**form["metadata"]))
