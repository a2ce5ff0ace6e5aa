"""Giving up privileges, and lending the session's identity for one signal."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

# The kernel ends a command before the agent when the sandbox runs out of memory.
OOM_SCORE_OF_COMMANDS = 1000
_OPEN_FILES = 4096
_OOM_SCORE = "/proc/self/oom_score_adj"


def limit_resources(processes: int) -> None:
    """Limits for one command's processes.

    `processes` counts every process of the uid, which belongs to this session alone.
    """
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    dump_no_core()
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))  # they would outlive their command
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))


def dump_no_core() -> None:
    """No crash of this process, or of one that it starts, leaves its memory anywhere.

    With a limit of 0 the kernel writes no file, but still feeds a program of the host, where
    `core_pattern` names one; 1 is too little for a file, and stands for "no program either".
    """
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def prefer_for_oom_kill() -> None:
    """Makes this process the first to go when memory runs out."""
    # A file object would cost a fresh child ten times as much as these calls.
    descriptor = os.open(_OOM_SCORE, os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"%d" % OOM_SCORE_OF_COMMANDS)
    os.close(descriptor)


class OomPreference:
    """Lets a guard start processes that are killed before it when memory runs out.

    The file is opened once, before the guard's own confinement closes /proc to it.
    """

    def __init__(self) -> None:
        self._fd = os.open(_OOM_SCORE, os.O_RDWR | os.O_CLOEXEC)
        self._own = os.read(self._fd, 16).strip()

    @contextmanager
    def to_be_killed(self) -> Iterator[None]:
        """What is forked meanwhile is among the first to go."""
        os.pwrite(self._fd, b"%d" % OOM_SCORE_OF_COMMANDS, 0)
        try:
            yield
        finally:
            os.pwrite(self._fd, self._own, 0)


def drop_to(uid: int) -> None:
    """Becomes the session's user, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def signal_as(uid: int, pid: int, number: int) -> None:
    """Signals a process of the session's uid; there is no CAP_KILL here.

    Only the effective uid is lent: with the real and saved uid still root, no process
    of the session can signal this one meanwhile. A process that is gone, or that has not become
    the session's yet, is no error.
    """
    os.seteuid(uid)
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.seteuid(0)


def default_signals() -> None:
    """Undoes the interpreter's ignored signals, which would survive exec."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
