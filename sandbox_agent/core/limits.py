"""Which sandbox limit a command hit: memory, processes, or disk space.

The kernel counts for the whole sandbox. A limit that one command hit is therefore reported for
every command that failed in the same period, and never for commands that succeeded.
"""

import os
from typing import NamedTuple

# The reasons as they stand in a command's result.
OOM, PIDS, DISK = "oom", "pids", "disk"

# Each counter's file in control groups version 2, then version 1.
_MEMORY = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_REFUSED = ("/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events")
_PEAK = ("/sys/fs/cgroup/pids.peak", "/sys/fs/cgroup/pids/pids.peak")
_CURRENT = ("/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current")
# A disk with less free space than this counts as full.
FULL_BYTES = 64 * 1024


class Counters(NamedTuple):
    """What the kernel has counted since the sandbox started; 0 for what it does not report.

    `killed` are processes killed for lack of memory, `refused` are refused creations of processes,
    and `peak` is the peak number of processes.
    """

    killed: int
    refused: int
    peak: int


class Meter:
    """Reads the sandbox's counters, from files that stay open."""

    def __init__(self) -> None:
        self._memory, self._refused = _opened(_MEMORY), _opened(_REFUSED)
        self._peak, self._current = _opened(_PEAK), _opened(_CURRENT)

    def counters(self) -> Counters:
        """The current counters."""
        return Counters(
            member(_read(self._memory), b"oom_kill"),
            member(_read(self._refused), b"max"),
            number(_read(self._peak)),
        )

    def running(self) -> int:
        """The number of processes and threads in the sandbox; 0 if it is not reported."""
        return number(_read(self._current))


def struck(before: Counters, after: Counters, now: int, most: int, *, full: bool) -> str | None:
    """The limit that was hit between the two readings; None if the kernel reports none. Pure.

    `now` is the current number of processes and threads, after one has just ended. `most` is their
    limit per uid; the kernel does not count what this limit refuses, so the peak number shows it.
    `full`: a disk was full.
    """
    if after.killed > before.killed:
        return OOM
    reached = before.peak < most <= after.peak or now >= most - 1
    if reached or after.refused > before.refused:
        return PIDS
    return DISK if full else None


def is_full(*directories: str) -> bool:
    """Whether a file system of these directories is out of space or of inodes."""
    return any(map(_is_full, directories))


def _is_full(directory: str) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    no_bytes = found.f_bavail * found.f_frsize < FULL_BYTES
    # Some file systems have no fixed number of inodes and report 0.
    return no_bytes or (found.f_files > 0 and found.f_favail == 0)


def member(text: bytes, name: bytes) -> int:
    """A counter in lines of the form `name number`; 0 if missing. Pure."""
    for line in text.splitlines():
        found, _, value = line.partition(b" ")
        if found == name:
            return number(value)
    return 0


def number(text: bytes) -> int:
    """The number in a file's text; 0 if there is none. Pure."""
    digits = text.strip()
    return int(digits) if digits.isdigit() else 0


def _opened(paths: tuple[str, ...]) -> int | None:
    for path in paths:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
    return None


def _read(descriptor: int | None) -> bytes:
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, 4096, 0)
    except OSError:
        return b""
