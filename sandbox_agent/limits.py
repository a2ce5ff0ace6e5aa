"""Which limit of the sandbox struck while a command ran: memory, processes, or room on a disk.

The kernel counts for the whole sandbox, so what struck one command is told of all that failed
meanwhile. That a limit struck is told of those that failed only: others could do without.
"""

import os
from typing import NamedTuple

# The reasons that a command's result has for it.
OOM, PIDS, DISK = "oom", "pids", "disk"

# Each as control groups of version 2 tell it, and of version 1.
_MEMORY = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_REFUSED = ("/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events")
_PEAK = ("/sys/fs/cgroup/pids.peak", "/sys/fs/cgroup/pids/pids.peak")
_CURRENT = ("/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current")
# A disk with less room than this, for any file at all, is full.
_FULL_BYTES = 64 * 1024


class Counters(NamedTuple):
    """What the kernel has counted since the sandbox began; 0 for what it does not tell.

    Processes that were killed for memory, times that one more was refused, and the most that
    there were at once.
    """

    killed: int
    refused: int
    peak: int


def counters() -> Counters:
    """As they are now."""
    return Counters(
        member(_read(_MEMORY), b"oom_kill"), member(_read(_REFUSED), b"max"), number(_read(_PEAK))
    )


def running() -> int:
    """How many processes and threads there are in the sandbox; 0 where the kernel does not tell."""
    return number(_read(_CURRENT))


def struck(before: Counters, after: Counters, now: int, most: int, *, full: bool) -> str | None:
    """The limit that struck between the two; None: none, as far as the kernel tells.

    `now` processes and threads run, one less than a moment ago. There may be `most` of them,
    which the kernel does not count refusals for: it shows in how many there were. `full`: a
    disk was. Pure.
    """
    if after.killed > before.killed:
        return OOM
    reached = before.peak < most <= after.peak or now >= most - 1
    if reached or after.refused > before.refused:
        return PIDS
    return DISK if full else None


def is_full(*directories: str) -> bool:
    """Whether one of their file systems has no more room, or takes no more files."""
    return any(map(_is_full, directories))


def _is_full(directory: str) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    no_bytes = found.f_bavail * found.f_frsize < _FULL_BYTES
    # Some file systems have no fixed number of files, and tell of none at all.
    return no_bytes or (found.f_files > 0 and found.f_favail == 0)


def member(text: bytes, name: bytes) -> int:
    """A counter in lines of `name number`; 0 where there is none. Pure."""
    for line in text.splitlines():
        found, _, value = line.partition(b" ")
        if found == name:
            return number(value)
    return 0


def number(text: bytes) -> int:
    """The number that a file has; 0 where it has none. Pure."""
    digits = text.strip()
    return int(digits) if digits.isdigit() else 0


def _read(paths: tuple[str, ...]) -> bytes:
    for path in paths:
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read(4096) or b""
        except OSError:
            continue
    return b""
