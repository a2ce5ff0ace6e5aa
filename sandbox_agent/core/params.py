"""Checks the form of request parameters before anything else happens. Pure.

Every function here raises an AgentError `validation_error` that names the member.
"""

import base64
from typing import Any

from sandbox_agent.core.output import STDERR, STDOUT, Chunk
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message

# Larger than any time limit, in milliseconds: 34 years.
MOST_MS = 2**40
LAST_SIGNAL = 64
_MOST = 2**53


def text(params: Message, name: str) -> str:
    """A string."""
    value = params.get(name)
    if not isinstance(value, str):
        raise _wrong(name, "a string")
    return value


def texts(params: Message, name: str) -> list[str]:
    """A list of strings."""
    value = params.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(name, "a list of strings")
    return value


def mapping(params: Message, name: str) -> dict[str, str]:
    """An object whose members are strings."""
    value = params.get(name)
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise _wrong(name, "an object of strings")
    return value


def number(params: Message, name: str, least: int = 0, most: int = _MOST) -> int:
    """An integer from `least` to `most`."""
    value = params.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _wrong(name, f"an integer from {least} to {most}")
    return value


def flag(params: Message, name: str) -> bool:
    """True or false."""
    value = params.get(name)
    if not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return value


def data(params: Message, name: str) -> bytes:
    """Bytes, encoded as base64."""
    try:
        return base64.b64decode(text(params, name), validate=True)
    except ValueError:
        raise _wrong(name, "base64") from None


def raw(params: Message, name: str) -> bytes:
    """Bytes as they are."""
    value = params.get(name)
    if not isinstance(value, bytes):
        raise _wrong(name, "bytes")
    return value


def contents(params: Message, name: str) -> dict[str, bytes]:
    """An object whose members are bytes; empty if it is missing."""
    encoded = mapping({name: params.get(name, {})}, name)
    return {member: data(encoded, member) for member in encoded}


def group(params: Message, name: str) -> dict[str, Any]:
    """An object that holds further parameters."""
    value = params.get(name)
    if not isinstance(value, dict):
        raise _wrong(name, "an object")
    return value


def _wrong(name: str, expected: str) -> AgentError:
    return AgentError("validation_error", f"{name} must be {expected}")


def chunks(params: Message, name: str) -> list[Chunk]:
    """Output as [stream, data]; the offsets are not transmitted."""
    items, found = params.get(name), []
    for item in items if isinstance(items, list) else [None]:
        if not isinstance(item, list) or len(item) != 2 or item[0] not in (STDOUT, STDERR):
            raise _wrong(name, "a list of [stream, data]")
        found.append(Chunk(item[0], 0, bytearray(data({name: item[1]}, name))))
    return found
