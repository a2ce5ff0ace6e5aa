"""Sends signals as the session's user: by number, or by descriptors to the processes of a tree.

A descriptor stays that of its process, so a signal sent by it reaches no other that has received
the number meanwhile.
"""

import ctypes
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from sandbox_agent.enforce import privileges, processes
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.processes import Stat
from sandbox_agent.enforce.syscalls import checked

_LIBC = ctypes.CDLL(None, use_errno=True)
_CALLS = ARCHITECTURES[os.uname().machine].calls
# A filter reports signals of its processes, except what carries these numbers; or there is none.
Mark = tuple[int, int]
UNMARKED: Mark = (0, 0)
# A parent that ends during the proof makes it fail.
_MOST_TRIES = 8
# Of one pass over a tree, which holds a descriptor of each.
_MOST_AT_ONCE = 512
# New processes may appear during a pass; those that come faster are for `standstill`.
_MOST_PASSES = 4


def kill(pid: int, number: int, mark: Mark | None = None) -> None:
    """The system call. Raises: OSError."""
    checked(int(_LIBC.syscall(_CALLS["kill"], pid, number, *map(ctypes.c_long, mark or UNMARKED))))


def kill_as(uid: int, pid: int, number: int, mark: Mark | None = None) -> None:
    """Signals what the session's user may signal; what is gone or is another's is no error."""
    with privileges.as_user(uid), suppress(ProcessLookupError, PermissionError):
        kill(pid, number, mark)


def send(descriptor: int, number: int, info: bytes | None = None, mark: Mark | None = None) -> None:
    """Signals the process of a descriptor. Raises: OSError."""
    words = map(ctypes.c_long, mark or UNMARKED)
    call = _CALLS["pidfd_send_signal"]
    checked(int(_LIBC.syscall(call, descriptor, number, info, 0, *words)))


def send_to_thread(process: int, thread: int, number: int, info: bytes) -> None:
    """Signals one thread, if it belongs to that process. Raises: OSError."""
    checked(int(_LIBC.syscall(_CALLS["rt_tgsigqueueinfo"], process, thread, number, info)))


@contextmanager
def opened(pid: int, root: int) -> Iterator[int]:
    """A descriptor of a process that is certain to be below `root`.

    Raises: ProcessLookupError if there is no such process below it.
    """
    for _ in range(_MOST_TRIES if pid != root else 0):
        before = processes.line(pid, root)
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            break
        try:
            if processes.certain(pid, root, before, processes.line(pid, root)):
                yield descriptor
                return
        finally:
            os.close(descriptor)
    raise ProcessLookupError


def to_all(
    root: int,
    send_one: Callable[[int, int], None],
    chosen: Callable[[int, Stat], bool] = lambda _pid, _stat: True,
    but: Collection[int] = (),
    *,
    seconds: float | None = None,
) -> None:
    """Calls back once with the number and a descriptor of each chosen process below `root`.

    Repeats that for processes that appear meanwhile, if it has not taken `seconds` yet.
    """
    done: set[tuple[int, int]] = set()
    began = time.monotonic()
    for number in range(_MOST_PASSES):
        if number and seconds is not None and time.monotonic() > began + seconds:
            break
        before = processes.snapshot()
        found = [
            pid
            for pid in processes.below(root, but, before)
            if (pid, before[pid].start) not in done and chosen(pid, before[pid])
        ]
        if not found:
            break
        with _descriptors(found[:_MOST_AT_ONCE]) as descriptors:
            after = processes.snapshot()
            for pid, descriptor in descriptors.items():
                if processes.certain(pid, root, before, after):
                    done.add((pid, before[pid].start))
                    send_one(pid, descriptor)


@contextmanager
def _descriptors(pids: list[int]) -> Iterator[dict[int, int]]:
    """Descriptors of those that are still there."""
    made: dict[int, int] = {}
    try:
        for pid in pids:
            with suppress(ProcessLookupError):
                made[pid] = os.pidfd_open(pid)
        yield made
    finally:
        for descriptor in made.values():
            os.close(descriptor)
