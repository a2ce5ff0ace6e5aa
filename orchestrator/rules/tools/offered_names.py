"""Names of tools as models and MCP clients take them: letters, digits, `_` and `-`, at most 64."""

import hashlib
import re
from collections.abc import Collection, Iterable

_TAKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST = 64
_DIGITS = 8


def offered_names(names: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """For each name of a tool the one that is offered; `taken` are names of others.

    `tool.command` becomes `tool__command`. What is too long, or would be the same as another one,
    ends with digits that depend on the whole name only. A name that can stay as it is stays.
    """
    every = dict.fromkeys(names)
    used = set(taken)
    found: dict[str, str] = {}
    # In an order that does not depend on who lists them.
    for name in sorted(every, key=lambda each: (not _TAKEN.fullmatch(each), each)):
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name.replace(".", "__"))
        if len(plain) > _LONGEST or plain in used:
            plain = _shortened(plain, name)
        used.add(plain)
        found[name] = plain
    return {name: found[name] for name in every}


def _shortened(plain: str, name: str) -> str:
    digits = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{plain[: _LONGEST - _DIGITS - 1]}_{digits}"
