"""Processes of a tree according to /proc."""

import os
from collections.abc import Collection, Mapping
from typing import NamedTuple


class Stat(NamedTuple):
    """One process at the time of reading; `start` is in clock ticks after the boot."""

    parent: int
    group: int
    start: int
    state: bytes


Stats = dict[int, Stat]


def look(pid: int) -> Stat | None:
    """The process; None if it is gone."""
    try:
        file = os.open(b"/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(file, 4096)
        finally:
            os.close(file)
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(b")")[2].split()
    return Stat(int(fields[1]), int(fields[2]), int(fields[19]), fields[0])


def snapshot() -> Stats:
    """All processes, read in the order of their numbers: not all at the same time."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = look(int(name))
            if stat is not None:
                found[int(name)] = stat
    return found


def line(pid: int, root: int) -> Stats:
    """The process and its ancestors up to `root`, which is not included."""
    found: Stats = {}
    while pid and pid != root and pid not in found:
        stat = look(pid)
        if stat is None:
            break
        found[pid] = stat
        pid = stat.parent
    return found


def below(root: int, but: Collection[int] = (), stats: Stats | None = None) -> list[int]:
    """All descendants of `root` except those in `but` and their descendants."""
    children: dict[int, list[int]] = {}
    for pid, stat in (snapshot() if stats is None else stats).items():
        if pid not in but:
            children.setdefault(stat.parent, []).append(pid)
    found: list[int] = []
    unseen = [root]
    while unseen:
        more = children.get(unseen.pop(), [])
        found += more
        unseen += more
    return found


def certain(pid: int, root: int, before: Mapping[int, Stat], after: Mapping[int, Stat]) -> bool:
    """Whether the process was below `root` at one time between the two readings.

    Numbers are reused, so one reading is no proof: a parent may end, and its number be given to
    another process, before its line is read. Both readings have the same order. A process that has
    the same start and parent in both was the same, and had that parent, all the time between its
    own two; and one of the two readings of its parent lies within that time.
    """
    while pid != root:
        first, second = before.get(pid), after.get(pid)
        if first is None or second is None:
            return False
        if (first.parent, first.start) != (second.parent, second.start):
            return False
        pid = first.parent
    return True
