"""Which environment variables and secrets a command may receive. Pure."""

import re
from collections.abc import Collection

INERT_PREFIX = "SECRET_"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def allowed_variable(name: str, patterns: Collection[str] | None) -> bool:
    """Whether a caller may set the environment variable `name`.

    `patterns` lists names, or prefixes that end in `*`. None allows any well-formed name.
    """
    if _VARIABLE.fullmatch(name) is None:
        return False
    if patterns is None or name in patterns:
        return True
    return any(name.startswith(item[:-1]) for item in patterns if item.endswith("*"))


def allowed_secret(name: str, patterns: Collection[str] | None) -> bool:
    """Whether a command may receive a secret under that name.

    If the name is not in `patterns`, it must be one that programs do not act on: no program gives a
    meaning to names that begin with `SECRET_`.
    """
    return allowed_variable(name, patterns) or (
        name.startswith(INERT_PREFIX) and allowed_variable(name, None)
    )


def refused_variable(
    env: Collection[str], secrets: Collection[str], patterns: Collection[str] | None, level: str
) -> str | None:
    """Why a command may not have these variables and secrets at this level; None if it may."""
    for name in env:
        if not allowed_variable(name, patterns):
            return f"environment variable not allowed at level {level}: {name}"
    for name in secrets:
        if not allowed_secret(name, patterns):
            return (
                f"secret not allowed at level {level} under the name {name}; begin it with "
                f"{INERT_PREFIX}"
            )
    return None
