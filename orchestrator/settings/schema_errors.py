"""Describes a value that failed validation by a model, in our own words. Pure functions."""

from typing import Any


def reason(kind: str, message: str) -> str:
    """The words after the field's name, from an error's `type` and `msg`."""
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not a known field"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if " should " in message:
        # pydantic's messages read "Input should be a valid integer", "String should have at most
        # …".
        return "must " + message.split(" should ", 1)[1]
    return message


def place(location: tuple[Any, ...]) -> tuple[Any, ...]:
    """The field's place, without the schema's own parts.

    Those parts are in brackets. So an error about a member's name counts as an error of the member,
    and an error about an alternative as an error of the field.
    """
    return tuple(part for part in location if not str(part).startswith("["))
