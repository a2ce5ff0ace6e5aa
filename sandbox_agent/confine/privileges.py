"""Giving up privileges, and lending the session's identity for one signal."""

import os
import resource
import signal

# The kernel ends a command before the agent when the sandbox runs out of memory.
OOM_SCORE_OF_COMMANDS = 1000
_OPEN_FILES = 4096


def limit_resources(processes: int) -> None:
    """Limits for one command's processes.

    `processes` counts every process of the uid, which belongs to this session alone.
    """
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))


def prefer_for_oom_kill() -> None:
    """Makes this process the first to go when memory runs out."""
    # A file object would cost a fresh child ten times as much as these calls.
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"%d" % OOM_SCORE_OF_COMMANDS)
    os.close(descriptor)


def drop_to(uid: int) -> None:
    """Becomes the session's user, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def signal_as(uid: int, pid: int, number: int) -> None:
    """Signals a process of the session's uid; there is no CAP_KILL here.

    Only the effective uid is lent: with the real and saved uid still root, no process
    of the session can signal this one meanwhile. A process that is gone is no error.
    """
    os.seteuid(uid)
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    finally:
        os.seteuid(0)


def default_signals() -> None:
    """Undoes the interpreter's ignored signals, which would survive exec."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
