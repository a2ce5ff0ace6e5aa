"""In which line of a TOML file something is, for messages about it. Pure."""

import re
from collections.abc import Sequence

_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?")
_ASSIGNED = re.compile(r"\s*([A-Za-z0-9_\"'.\s-]+?)\s*=")
_QUOTES = "\"' "


def line_of(text: str, place: Sequence[int | str]) -> int | None:
    """The line, from 1, of the member at that place, or else of the nearest table around it.

    It knows tables in brackets and keys at the beginning of a line, as people write them; None if
    the file has no part of the place. Linear.
    """
    wanted = [str(part) for part in place]
    table: list[str] = []
    best, line = 0, None
    for number, row in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(row)
        if header is not None:
            table = found = _parts(header[1])
        else:
            assigned = _ASSIGNED.match(row)
            if assigned is None:
                continue
            found = [*table, *_parts(assigned[1])]
        # It leads to the place, or is in it; the first of the deepest ones counts.
        depth = min(len(found), len(wanted))
        if found[:depth] == wanted[:depth] and depth > best:
            best, line = depth, number
    return line


def _parts(text: str) -> list[str]:
    return [part.strip(_QUOTES) for part in text.split(".")]
