"""Who descends from whom, as /proc tells it."""

import os
from collections.abc import Collection


def below(root: int, but: Collection[int] = ()) -> list[int]:
    """Every process below `root`, from /proc; not those in `but`, nor what is below them."""
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
