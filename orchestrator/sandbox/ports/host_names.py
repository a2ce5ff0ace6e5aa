"""Host names of ports: one label, `PORT-SESSION`, below the previews' domain. Pure functions.

A page keeps what it stores for its host name. Sessions may have the id of an earlier one, so from
the second one of an id on, its number follows the port: `8000n2-web`.
"""

import re
from typing import NamedTuple

_MOST_LABEL = 63
_LABEL = re.compile(
    r"([1-9][0-9]{0,4})(?:n([2-9]|[1-9][0-9]{1,8}))?-([a-z0-9][a-z0-9_-]{0,60})", re.ASCII
)


class NamedPort(NamedTuple):
    """A port of the `incarnation`-th session whose id is `session_name`, in any case."""

    port: int
    session_name: str
    incarnation: int


def host_label(port: int, session_id: str, incarnation: int) -> str | None:
    """The label of a port; None if the id is too long for it, or has a dot."""
    number = "" if incarnation == 1 else f"n{incarnation}"
    label = f"{port}{number}-{session_id.lower()}"
    return label if read_label(label) is not None else None


def read_label(label: str) -> NamedPort | None:
    """The port of a label in lower case; None if it is no port's."""
    found = _LABEL.fullmatch(label) if len(label) <= _MOST_LABEL else None
    if found is None or int(found[1]) > 65535:
        return None
    return NamedPort(int(found[1]), found[3], int(found[2] or 1))
