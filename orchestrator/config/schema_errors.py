"""What is wrong with a value that was checked by a model, in our own words. Pure."""

from typing import Any


def reason(kind: str, message: str) -> str:
    """What to say after the field's name, from an error's `type` and `msg`."""
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not a known field"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if " should " in message:
        # pydantic says "Input should be a valid integer", "String should have at most …".
        return "must " + message.split(" should ", 1)[1]
    return message


def place(location: tuple[Any, ...]) -> tuple[Any, ...]:
    """Where it is; a wrong name of a member is told as the member's."""
    return tuple(part for part in location if part != "[key]")
