"""Names of tools that models and MCP clients accept: at most 64 letters, digits, `_` and `-`."""

import hashlib
import re
from collections.abc import Collection, Iterable

_TAKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST = 64
_DIGITS = 8


def offered_names(names: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """The offered name for each name of a tool; `taken` are names that others have.

    `tool.command` becomes `tool__command`. A name that is too long, or that another tool has, is
    shortened and ends with digits of its own digest. An acceptable name does not change.
    """
    every = dict.fromkeys(names)
    used = set(taken)
    found: dict[str, str] = {}
    # The order must not depend on the order of the list.
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
