"""Detects whether a terminal's program waits for input, which tells a prompt from other text.

A program waits if a thread of the terminal's foreground process is blocked in a system call that
reads from the terminal, or that waits until there is input. So a program that prints a fake prompt
and then computes or sleeps does not wait.
"""

import os
import stat
import struct
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from sandbox_agent.enforce.privileges import as_user
from sandbox_agent.pty import device

# Limits of one check: a program can have many threads, and each can wait for many descriptors.
_MOST_THREADS = 256
_MOST_FILES = 1024
_POLLFD = struct.Struct("=ihh")
_READABLE = 0x41  # POLLIN, POLLRDNORM; EPOLLIN and EPOLLRDNORM are the same
_BITS = 8
_WORDS = 9  # of a call's line: its number, six arguments, stack and instruction pointers
_FD_MASK = 0xFFFFFFFF
_CONTROLLING_TERMINAL = os.makedev(5, 0)  # /dev/tty
_PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
_ADMIN_ONLY = 2


class _Calls(NamedTuple):
    """System calls that may wait for a terminal's input, grouped by their arguments."""

    read: frozenset[int]  # a descriptor
    poll: frozenset[int]  # an array of descriptors and events, and its length
    select: frozenset[int]  # the highest descriptor plus one, and a set of descriptors
    epoll: frozenset[int]  # an epoll descriptor


_CALLS = {
    "x86_64": _Calls(
        read=frozenset({0, 19}),
        poll=frozenset({7, 271}),
        select=frozenset({23, 270}),
        epoll=frozenset({232, 281, 441}),
    ),
    "aarch64": _Calls(
        read=frozenset({63, 65}),
        poll=frozenset({73}),
        select=frozenset({72}),
        epoll=frozenset({22, 441}),
    ),
}


class Program(NamedTuple):
    """The file that a process executes."""

    device: int
    inode: int


# Used where the kernel does not reveal who waits.
_UNKNOWN = Program(0, 0)


class PromptDetector:
    """Inspects the programs of terminals with the rights of the session's user, who runs them.

    A program that has made itself unreadable counts as not waiting. If the kernel does not reveal
    system calls, a program that is asleep counts as waiting.
    """

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._calls = _CALLS.get(os.uname().machine) if _calls_are_visible() else None

    def foreground_waits(self, master: int, terminal: int) -> bool:
        """Whether a program of the terminal's foreground waits for input, whoever started it.

        False if the kernel does not reveal system calls.
        """
        try:
            group = os.tcgetpgrp(master)
        except OSError:
            return False  # it has ended
        if self._calls is None:
            return False
        return self._waiting(self._calls, group, terminal, None) is not None

    def waiting_program(self, master: int, terminal: int, only: Program | None) -> Program | None:
        """The program that waits for input in a terminal's foreground; None if none does.

        `terminal` is the device number. With `only`, no other program counts: a program that the
        tool has started could print the tool's prompt and wait for input. While another process
        group is in the foreground, no program waits.
        """
        try:
            leader = device.session_leader(master)
            if os.tcgetpgrp(master) != leader:
                return None
        except OSError:
            return None  # it has ended
        if self._calls is None:
            return _UNKNOWN if _is_asleep(leader) else None
        return self._waiting(self._calls, leader, terminal, only)

    def _waiting(
        self, calls: _Calls, group: int, terminal: int, only: Program | None
    ) -> Program | None:
        """The program of a process group that waits for the terminal's input."""
        with as_user(self._uid):
            for pid, fd in islice(_inputs(calls, group), _MOST_FILES):
                if _is_terminal(f"/proc/{pid}/fd/{fd}", terminal):
                    found = _program(pid)
                    if found is not None and only in (None, found):
                        return found
        return None


def _calls_are_visible() -> bool:
    """Whether the kernel shows the system calls of other processes to the agent."""
    if not os.path.exists("/proc/self/syscall"):
        return False
    try:
        with open(_PTRACE_SCOPE, "rb") as file:
            return int(file.read()) < _ADMIN_ONLY
    except OSError:
        return True  # a kernel without Yama


def _program(pid: int) -> Program | None:
    try:
        found = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None
    return Program(found.st_dev, found.st_ino)


def _inputs(calls: _Calls, leader: int) -> Iterator[tuple[int, int]]:
    """The pids and descriptors that the threads of the leader's process group wait to read from."""
    threads = chain(_threads(leader), chain.from_iterable(map(_threads, _others(leader))))
    for pid, thread in islice(threads, _MOST_THREADS):
        try:
            for fd in _awaited(calls, pid, thread):
                yield pid, fd
        except (OSError, ValueError, OverflowError):
            continue  # it has ended, or passed invalid data to the kernel


def _threads(pid: int) -> Iterator[tuple[int, str]]:
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    yield from ((pid, name) for name in names)


def _others(leader: int) -> Iterator[int]:
    """The other processes of the leader's process group."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != leader and _stat(name)[2:3] == [b"%d" % leader]:
            yield int(name)


def _stat(pid: int | str) -> list[bytes]:
    """The state, parent, process group and so on; empty for a process that has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _is_asleep(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], [b"R"])


def _awaited(calls: _Calls, pid: int, thread: str) -> Iterator[int]:
    """The descriptors that a thread waits to read from. Raises: OSError, ValueError."""
    with open(f"/proc/{pid}/task/{thread}/syscall", "rb") as file:
        words = file.read().split()
    if len(words) < _WORDS:
        return  # it is running, or waits outside any system call
    number, first, second = int(words[0]), int(words[1], 16), int(words[2], 16)
    if number in calls.read:
        yield first & _FD_MASK
    elif number in calls.epoll:
        yield from _of_epoll(pid, first & _FD_MASK)
    elif number in calls.poll:
        data = _memory(pid, first, min(second, _MOST_FILES) * _POLLFD.size)
        whole = len(data) // _POLLFD.size * _POLLFD.size
        yield from (fd for fd, events, _ in _POLLFD.iter_unpack(data[:whole]) if _readable(events))
    elif number in calls.select and second:
        most = min(first & _FD_MASK, _MOST_FILES)
        bits = int.from_bytes(_memory(pid, second, most // _BITS + 1), sys.byteorder)
        yield from (fd for fd in range(most) if bits >> fd & 1)


def _readable(events: int) -> bool:
    return bool(events & _READABLE)


def _of_epoll(pid: int, fd: int) -> Iterator[int]:
    """The descriptors of an epoll instance: lines `tfd: 0 events: 19 …`, the events in hex."""
    with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
        for line in islice(file, _MOST_FILES):
            words = line.split()
            if words[:1] == [b"tfd:"] and _readable(int(words[3], 16)):
                yield int(words[1])


def _memory(pid: int, at: int, size: int) -> bytes:
    """Raises: OSError; OverflowError for an impossible address."""
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, size, at)
    finally:
        os.close(memory)


def _is_terminal(path: str, terminal: int) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev in (terminal, _CONTROLLING_TERMINAL)
