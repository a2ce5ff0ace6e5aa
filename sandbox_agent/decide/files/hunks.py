"""What the hunks of a patch make of the lines of a file. Pure.

A hunk applies where its old lines are exactly what the file has: at the place that it states, or at
the nearest other place after the previous hunk. There is no fuzz. Work and memory are linear in the
hunks and the file, up to stated bounds.
"""

from collections.abc import Sequence
from typing import NamedTuple

# The most lines of files that are looked at for hunks that do not stand where they say.
_MOST_SEARCHED_LINES = 4_000_000


class Hunk(NamedTuple):
    """The lines that a part of a file has, and those that it gets; each with its line end.

    `start` is the first old line, from 1; without old lines, the line after which the new ones go.
    """

    header: str
    start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]


class Reject(NamedTuple):
    """Why a file is refused; `hunk` counts from 1, and is 0 if it is not about a hunk."""

    path: str
    hunk: int
    header: str
    reason: str


def applied(
    content: bytes, hunks: Sequence[Hunk], path: str, most: int = _MOST_SEARCHED_LINES
) -> tuple[bytes, list[Reject], int]:
    """The content with these hunks, the hunks that do not apply, and how many lines were searched.

    `most`: how many may be.
    """
    lines = content.splitlines(keepends=True) if b"\r" not in content else _split(content)
    made: list[bytes] = []
    rejects: list[Reject] = []
    taken = moved = searched = 0
    for number, hunk in enumerate(hunks, 1):
        wanted = max(hunk.start - (1 if hunk.old else 0) + moved, taken)
        place: int | None = wanted
        if not _stands(lines, hunk.old, wanted):
            searched += len(lines) - taken + len(hunk.old)
            place = None if searched > most else _nearest(lines, hunk.old, taken, wanted)
        if place is None:
            reason = "its old lines are not in the file"
            if searched > most:
                reason = "the search for hunks that do not stand where they say took too long"
            rejects.append(Reject(path, number, hunk.header, reason))
            continue
        made += lines[taken:place]
        made += hunk.new
        moved += place - wanted
        taken = place + len(hunk.old)
    made += lines[taken:]
    return b"".join(made), rejects, searched


def _split(content: bytes) -> list[bytes]:
    """Lines that end with a newline only: `splitlines` also splits at carriage returns."""
    *whole, last = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


def _stands(lines: Sequence[bytes], old: Sequence[bytes], place: int) -> bool:
    return place + len(old) <= len(lines) and list(lines[place : place + len(old)]) == list(old)


def _nearest(lines: Sequence[bytes], old: Sequence[bytes], first: int, wanted: int) -> int | None:
    """The nearest place from `first` on where these lines stand, by Knuth, Morris and Pratt."""
    if not old:
        return len(lines)
    borders = _borders(old)
    best: int | None = None
    matched = 0
    for index in range(first, len(lines)):
        while matched and (matched == len(old) or lines[index] != old[matched]):
            matched = borders[matched - 1]
        if lines[index] == old[matched]:
            matched += 1
        if matched == len(old):
            place = index + 1 - matched
            if best is None or abs(place - wanted) <= abs(best - wanted):
                best = place
            elif place > wanted:
                break
    return best


def _borders(lines: Sequence[bytes]) -> list[int]:
    """For each prefix of the lines, the length of its longest border."""
    borders = [0]
    matched = 0
    for line in lines[1:]:
        while matched and line != lines[matched]:
            matched = borders[matched - 1]
        matched += line == lines[matched]
        borders.append(matched)
    return borders
