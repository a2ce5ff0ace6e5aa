"""Drops privileges, and takes on the session's identity for a moment."""

import os
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

# The kernel kills a command before the agent when the sandbox runs out of memory.
OOM_SCORE_OF_COMMANDS = 1000
_OPEN_FILES = 4096
_OOM_SCORE = "/proc/self/oom_score_adj"


def limit_resources(processes: int) -> None:
    """Sets the limits for one command's processes.

    `processes` counts every process of the uid, which belongs to this session alone.
    """
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    dump_no_core()
    resource.setrlimit(
        resource.RLIMIT_MSGQUEUE, (0, 0)
    )  # message queues would outlive their command
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))


def dump_no_core() -> None:
    """Ensures that no crash of this process, or of one that it starts, stores its memory.

    With a limit of 0 the kernel writes no file, but still runs a program on the host if
    `core_pattern` names one. A limit of 1 is too small for a file, and also stops the program.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def prefer_for_oom_kill() -> None:
    """Makes this process the first one to be killed when memory runs out."""
    # A file object would take a new child ten times as long as these calls.
    descriptor = os.open(_OOM_SCORE, os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"%d" % OOM_SCORE_OF_COMMANDS)
    os.close(descriptor)


class OomPreference:
    """Lets a guard start processes that are killed before it when memory runs out.

    The file is opened once, before the guard's own confinement closes /proc.
    """

    def __init__(self) -> None:
        self.descriptor = os.open(_OOM_SCORE, os.O_RDWR | os.O_CLOEXEC)
        self._own = os.read(self.descriptor, 16).strip()

    @contextmanager
    def to_be_killed(self) -> Iterator[None]:
        """Processes forked in this context are among the first to be killed."""
        os.pwrite(self.descriptor, b"%d" % OOM_SCORE_OF_COMMANDS, 0)
        try:
            yield
        finally:
            os.pwrite(self.descriptor, self._own, 0)


def drop_to(uid: int) -> None:
    """Becomes the session's user permanently."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Acts as the session's user, as there is no capability to signal or use what is another's.

    To look into processes that are root inside, it takes this: their namespace belongs to the user.
    Only the effective ids change. The real and saved uid remain root, so no process of the session
    can signal this one in the meantime.
    """
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def wholly_as(uid: int) -> Iterator[None]:
    """Acts as the session's user in whole: as its real user, too.

    `as_user` leaves root as the real user, who may signal root's processes and may not set limits
    of others. Only the agent may use this: the user's processes would have the right to signal
    this one meanwhile, but filter or scopes keep commands from it.
    """
    os.setresgid(uid, uid, 0)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def close_others(keep: Iterable[int]) -> None:
    """Closes all descriptors but the standard streams and those in `keep`.

    The agent's children use it: the pipes of commands must not stay open in them.
    """
    low = 3
    for fd in sorted(keep):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def default_signals() -> None:
    """Resets the signals that the interpreter ignores, because ignored signals survive exec."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
