"""Finds the program that a process runs, and the one that it is about to execute.

The caller of these functions first takes on the file identity of that process's user.
"""

import os
import stat
from typing import NamedTuple

from sandbox_agent.enforce import resolve
from sandbox_agent.enforce.resolve import leader, read

# The path of a file that can't be determined.
UNKNOWN = "unknown"
# How much of a script the kernel reads, and how many nested interpreters it follows.
_FIRST_BYTES = 256
_MOST_INTERPRETERS = 5

Identity = tuple[int, int]


class Program(NamedTuple):
    """A file that is, or is about to be, executed.

    `images` are the files that a process may run once it has executed this one: the file itself
    and, for a script, its interpreters. None if they can't be determined.
    """

    path: str
    images: frozenset[Identity] | None


class Process(NamedTuple):
    """Identifies a live process: its pid, and its start in clock ticks after the boot."""

    id: int
    start: int


NOT_KNOWN = Program(UNKNOWN, None)


def process(task: int) -> Process:
    """The process of a thread. Raises: OSError if it is gone."""
    threads, start = _stat(task)
    if threads == 1:
        return Process(task, start)
    pid = leader(task)
    return Process(pid, _stat(pid)[1])


def running(task: int) -> Program:
    """The program that a thread's process currently runs."""
    try:
        found = os.open(b"/proc/%d/exe" % task, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return NOT_KNOWN
    try:
        return Program(path_of(found), frozenset([_identity(os.fstat(found))]))
    finally:
        os.close(found)


def program(task: int, path: bytes) -> Program:
    """The program that the thread would execute by that path.

    Raises: OSError if there is no such file, with the kernel's error number.
    """
    if not _same_root(task):
        return NOT_KNOWN
    found = _opened(task, path)
    if found is None:
        return NOT_KNOWN
    try:
        return Program(path_of(found), _images(task, found, _MOST_INTERPRETERS))
    finally:
        os.close(found)


def _opened(task: int, path: bytes) -> int | None:
    """The file as an O_PATH descriptor; None if the path is too long. Raises: OSError."""
    start = resolve.start(task, None, path)
    try:
        return resolve.opened(task, start, path)
    except resolve.TooManySteps:
        return None
    finally:
        os.close(start)


def _images(task: int, found: int, depth: int) -> frozenset[Identity] | None:
    status = os.fstat(found)
    own = frozenset([_identity(status)])
    if not stat.S_ISREG(status.st_mode):
        return own
    interpreter = _interpreter(found)
    if interpreter == b"":
        return own
    if interpreter is None or not depth:
        return None
    try:
        other = _opened(task, interpreter)
    except OSError:
        return own
    if other is None:
        return None
    try:
        below = _images(task, other, depth - 1)
    finally:
        os.close(other)
    return None if below is None else own | below


def _interpreter(found: int) -> bytes | None:
    """The interpreter of a script; empty if there is none, None if the file can't be read."""
    try:
        file = os.open(b"/proc/self/fd/%d" % found, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        first = os.read(file, _FIRST_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)
    if first[:2] != b"#!":
        return b""
    words = first[2:].split(b"\n")[0].split(b"\0")[0].split()
    return words[0] if words else b""


def path_of(found: int) -> str:
    """The path of an open file; UNKNOWN if it has none, or none any more."""
    path = os.readlink(b"/proc/self/fd/%d" % found)
    if path[:1] != b"/" or not os.fstat(found).st_nlink:
        return UNKNOWN
    return path.decode("utf-8", "backslashreplace")


def _same_root(task: int) -> bool:
    """Whether the caller's root is the agent's, which nothing can change."""
    try:
        theirs = os.stat(b"/proc/%d/root" % task)
    except PermissionError:
        return False
    return os.path.samestat(theirs, os.stat("/"))


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _stat(task: int) -> tuple[int, int]:
    """The number of threads of its process, and the thread's start time. Raises: OSError."""
    fields = read(b"/proc/%d/stat" % task).rpartition(b")")[2].split()
    return int(fields[17]), int(fields[19])
