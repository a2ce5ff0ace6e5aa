"""Unified diffs of texts, in bounded time: pure.

The algorithm finds the smallest number of changed lines (Myers, 1986). Two texts are shown as one
replacement if they differ in more than `MOST_EDITS` lines, or if the effort is used up.
"""

from collections.abc import Sequence

MOST_EDITS = 600
_CONTEXT = 3
# Steps for all diffs of one answer; a step takes less than a microsecond.
EFFORT = 4_000_000
_NO_NEWLINE = "\\ No newline at end of file\n"

# Half-open ranges of changed lines: old from, old to, new from, new to.
_Block = tuple[int, int, int, int]


class Effort:
    """The steps that are left for further diffs."""

    def __init__(self, steps: int = EFFORT) -> None:
        self.steps = steps


def unified(old: str, new: str, old_name: str, new_name: str, effort: Effort) -> str:
    """The unified diff; empty if the texts are equal."""
    before, after = _lines(old), _lines(new)
    blocks = changed_blocks(before, after, effort)
    if not blocks:
        return ""
    parts = [f"--- {old_name}\n", f"+++ {new_name}\n"]
    for hunk in _hunks(blocks):
        parts += _hunk(hunk, before, after)
    return "".join(parts)


def changed_blocks(old: Sequence[str], new: Sequence[str], effort: Effort) -> list[_Block]:
    """The ranges in which the texts differ, in order."""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[len(old) - 1 - end] == new[len(new) - 1 - end]:
        end += 1
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    if not a and not b:
        return []
    pairs = _equal_pairs(a, b, effort) if a and b else []
    blocks, x, y = [], 0, 0
    for i, j in [*(pairs or ()), (len(a), len(b))]:
        if i > x or j > y:
            blocks.append((start + x, start + i, start + y, start + j))
        x, y = i + 1, j + 1
    return blocks


def _equal_pairs(
    a: Sequence[str], b: Sequence[str], effort: Effort
) -> list[tuple[int, int]] | None:
    """The positions of a longest common subsequence; None if finding it takes too long."""
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(min(len(a) + len(b), MOST_EDITS) + 1):
        trace.append(dict(reach))
        effort.steps -= 2 * edits + 1
        if effort.steps < 0:
            return None
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
                effort.steps -= 1
            reach[k] = x
            if x >= len(a) and y >= len(b):
                return _backtracked(trace, x, y)
    return None


def _backtracked(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for edits in range(len(trace) - 1, -1, -1):
        reach, k = trace[edits], x - y
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        start_x = reach[before]
        start_y = start_x - before
        while x > start_x and y > start_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start_x, start_y
    pairs.reverse()
    return [(i, j) for i, j in pairs if i >= 0 and j >= 0]


def _hunks(blocks: list[_Block]) -> list[list[_Block]]:
    """Groups of blocks whose contexts touch."""
    hunks = [[blocks[0]]]
    for block in blocks[1:]:
        if block[0] - hunks[-1][-1][1] <= 2 * _CONTEXT:
            hunks[-1].append(block)
        else:
            hunks.append([block])
    return hunks


def _hunk(hunk: list[_Block], old: Sequence[str], new: Sequence[str]) -> list[str]:
    first, last = hunk[0], hunk[-1]
    lead = min(_CONTEXT, first[0])
    tail = min(_CONTEXT, len(old) - last[1])
    old_range = _range(first[0] - lead, last[1] + tail)
    new_range = _range(first[2] - lead, last[3] + tail)
    parts = [f"@@ -{old_range} +{new_range} @@\n"]
    at = first[0] - lead
    for from_old, to_old, from_new, to_new in hunk:
        parts += [_marked(" ", line) for line in old[at:from_old]]
        parts += [_marked("-", line) for line in old[from_old:to_old]]
        parts += [_marked("+", line) for line in new[from_new:to_new]]
        at = to_old
    parts += [_marked(" ", line) for line in old[at : last[1] + tail]]
    return parts


def _range(start: int, end: int) -> str:
    """A range of lines as diffs write it."""
    if end == start:
        return f"{start},0"
    return f"{start + 1}" if end == start + 1 else f"{start + 1},{end - start}"


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}"


def _lines(text: str) -> list[str]:
    """The lines with their ends. Only a line feed ends a line."""
    lines = text.split("\n")
    whole = [f"{line}\n" for line in lines[:-1]]
    return whole if lines[-1] == "" else [*whole, lines[-1]]
