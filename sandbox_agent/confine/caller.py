"""Resolves a path as the process that passed it, and finds the program that a process runs.

A path may lead through the caller's own directory, descriptors and /proc/self, so it must be
resolved as the caller would see it. The caller of these functions first takes on the file identity
of that process's user.
"""

import errno
import os
import stat
from typing import NamedTuple

from sandbox_agent.confine import syscalls

# The path of a file that can't be determined.
UNKNOWN = "unknown"
_PROC_ROOT_INODE = 1
# Limit on the components that are resolved one by one.
_MOST_STEPS = 256
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
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
    leader = _leader(task)
    return Process(leader, _stat(leader)[1])


def running(task: int) -> Program:
    """The program that a thread's process currently runs."""
    try:
        found = os.open(b"/proc/%d/exe" % task, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return NOT_KNOWN
    try:
        return Program(_path(found), frozenset([_identity(os.fstat(found))]))
    finally:
        os.close(found)


def program(task: int, path: bytes) -> Program:
    """The program that the thread would execute by that path.

    Raises: OSError if there is no such file, with the kernel's error number.
    """
    if not _same_root(task):
        return NOT_KNOWN
    found = _resolved(task, path)
    if found is None:
        return NOT_KNOWN
    try:
        return Program(_path(found), _images(task, found, _MOST_INTERPRETERS))
    finally:
        os.close(found)


def _resolved(task: int, path: bytes) -> int | None:
    """The file as an O_PATH descriptor; None if the path has too many components."""
    directory = os.open("/" if path[:1] == b"/" else b"/proc/%d/cwd" % task, _FLAGS ^ os.O_NOFOLLOW)
    try:
        try:
            # A path that stays on one mount does not depend on the process.
            return syscalls.open_on_mount(directory, path, os.O_PATH)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ELOOP, errno.EAGAIN):
                raise
        return _walked(task, directory, path)
    finally:
        os.close(directory)


def _walked(task: int, directory: int, path: bytes) -> int | None:
    """Resolves the path component by component, as the caller would."""
    at = os.dup(directory)
    rest = path.split(b"/")[::-1]
    steps = 0
    try:
        while rest:
            name = rest.pop()
            if name in (b"", b"."):
                continue
            steps += 1
            if steps > _MOST_STEPS:
                return None
            found, more = _entered(task, at, name)
            os.close(at)
            at = found
            rest += more
        return os.dup(at)
    finally:
        os.close(at)


def _entered(task: int, at: int, name: bytes) -> tuple[int, list[bytes]]:
    """Resolves one name in a directory; returns the file and the components still to resolve.

    The components are in reverse order.
    """
    found = os.open(name, _FLAGS, dir_fd=at)
    if not stat.S_ISLNK(os.fstat(found).st_mode):
        return found, []
    try:
        where = os.fstat(at)
        in_proc = where.st_dev == os.stat("/proc").st_dev
        if in_proc and where.st_ino != _PROC_ROOT_INODE:
            # The link has no text that shows its target, so let the kernel follow it.
            return os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=at), []
        target = _target(task, name if in_proc else b"", found)
    finally:
        os.close(found)
    start = os.open("/", _FLAGS) if target[:1] == b"/" else os.dup(at)
    return start, target.split(b"/")[::-1]


def _target(task: int, name: bytes, link: int) -> bytes:
    """The target of a link; `name` is set in /proc's root, where links depend on the caller."""
    if name == b"self":
        return b"%d" % _leader(task)
    if name == b"thread-self":
        return b"%d/task/%d" % (_leader(task), task)
    return os.readlink(b"", dir_fd=link)


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
        other = _resolved(task, interpreter)
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


def _path(found: int) -> str:
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
    fields = _read(b"/proc/%d/stat" % task).rpartition(b")")[2].split()
    return int(fields[17]), int(fields[19])


def _leader(task: int) -> int:
    """The pid of the thread's process. Raises: OSError."""
    status = _read(b"/proc/%d/status" % task)
    return int(status.partition(b"\nTgid:")[2].split(maxsplit=1)[0])


def _read(path: bytes) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(file, 4096)
    finally:
        os.close(file)
    if not data:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return data
