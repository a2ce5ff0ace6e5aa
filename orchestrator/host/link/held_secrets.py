"""The secrets that an agent says it holds. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox_agent.decide.redaction import MOST_BYTES

# The most variables, and the most other secrets.
_MOST = 256
_SEAL = re.compile(r"[0-9a-f]{64}")
Sealed = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HeldSecrets:
    """The secrets that an agent holds, as (value, seal): by name, and those of commands."""

    variables: Mapping[str, Sealed] = field(default_factory=dict, repr=False)
    given: tuple[Sealed, ...] = field(default=(), repr=False)


def parse_secrets(value: Any) -> HeldSecrets:
    """The `secrets` of a hello. Raises: ValueError."""
    if not isinstance(value, dict):
        raise ValueError("secrets must be an object")
    variables, given = value.get("variables"), value.get("given")
    if not isinstance(variables, dict) or not isinstance(given, list):
        raise ValueError("secrets must have variables and given")
    if len(variables) > _MOST or len(given) > _MOST:
        raise ValueError("secrets must be few")
    named = {name: _sealed(item) for name, item in variables.items()}
    return HeldSecrets(named, tuple(map(_sealed, given)))


def _sealed(item: Any) -> Sealed:
    if not isinstance(item, list) or len(item) != 2 or not all(isinstance(x, str) for x in item):
        raise ValueError("a secret must be its value and its seal")
    value, seal = item
    if len(value) > MOST_BYTES or not _SEAL.fullmatch(seal) or not _is_text(value):
        raise ValueError("a secret must be a text, and its seal 64 hex digits")
    return value, seal


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
