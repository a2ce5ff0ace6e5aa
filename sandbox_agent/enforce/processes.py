"""Descendants of a process according to /proc."""

import os
from collections.abc import Collection


def below(root: int, but: Collection[int] = ()) -> list[int]:
    """All descendants of `root` except those in `but` and their descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(name) not in but:
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    unseen = [root]
    while unseen:
        more = children.get(unseen.pop(), [])
        found += more
        unseen += more
    return found
