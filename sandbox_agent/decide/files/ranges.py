"""Parts of a file, and versions of it, as HTTP names them. Pure."""

import os
from collections.abc import Sequence

from sandbox_agent.decide.digest import sha256

ANY = "*"


def part(size: int, first: int | None, last: int | None) -> tuple[int, int] | None:
    """Where a range of a file begins, and how many bytes it has; None if the file has none of it.

    Without `first`, it is the last `last` bytes; without `last`, everything from `first` on.
    """
    if first is None:
        count = min(last or 0, size)
        return (size - count, count) if count else None
    end = size if last is None else min(last + 1, size)
    return (first, end - first) if first < end else None


def version(status: os.stat_result) -> str:
    """The entity tag of a file: it changes with each change of its content, name or mode.

    It is made of the inode, the size and the times in nanoseconds, not of the content.
    """
    numbers = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return sha256(repr(numbers).encode()).hexdigest()[:32]


def meets(found: str | None, match: Sequence[str] | None, none_match: Sequence[str] | None) -> bool:
    """Whether a file of that version, None if it does not exist, meets `If-Match` and its opposite.

    Each is a list of versions, or `*` for any; None: there is no such condition.
    """
    if match is not None and (found is None or (ANY not in match and found not in match)):
        return False
    return none_match is None or found is None or not (ANY in none_match or found in none_match)
