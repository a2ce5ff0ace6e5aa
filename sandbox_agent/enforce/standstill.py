"""Ends processes that multiply faster than a search through /proc can follow.

One `kill(-1, SIGSTOP)` stops all processes of the session's user at once. Why none escapes:

* The kernel sends it to every process in one step. A process with a signal that waits can't begin a
  fork, and the child of a fork that had begun is born with the same signal. Nothing blocks SIGSTOP.
* So the processes are a fixed set, as soon as those forks are over. Each found one loses the right
  to fork (RLIMIT_NPROC) before the first one is killed: the kernel continues stopped processes
  whose group loses its last parent, and they could fork again.
* The search is repeated until it finds no other.

Then everything else of the user is continued, also by one `kill(-1)`, which reaches the children of
forks that had begun; what was stopped before is stopped again. The agent does all of it without
serving anything meanwhile, so no other signal of its own comes between. If the agent ends, so does
the sandbox: nothing stays stopped.
"""

import os
import resource
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from sandbox_agent.enforce import privileges, processes, signalling
from sandbox_agent.enforce.processes import Stat, Stats

# A process that runs or waits in the kernel may be in a fork. One that waits for longer is in
# something else: in vfork, where its child has stopped, or for a disk.
_MOVING = (b"R", b"D")
_SETTLE_SECONDS = 0.2
_LOOK_SECONDS = 0.001
_STOPPED = b"T"
_OVER = (b"Z", b"X")
_MOST_ROUNDS = 16
# A number and its process's start.
_Identity = tuple[int, int]


def end(uid: int, root: int, but: Collection[int] = ()) -> bool:
    """Kills the user's processes below `root`, but those in `but` and what is below these.

    Returns whether the last search found no other.
    """
    killed: set[_Identity] = set()
    with everything_stopped(uid):
        for _ in range(_MOST_ROUNDS):
            found = {
                pid: stat
                for pid, stat in _settled(root, but).items()
                if stat.state not in _OVER and (pid, stat.start) not in killed
            }
            if not found:
                return True
            _forbid_forks(uid, found)
            killed |= _kill(uid, root, but, found)
    return False


def send(uid: int, root: int, number: int) -> None:
    """Signals the user's processes below `root`; stopped ones heed it once they are continued."""

    def send_one(_pid: int, descriptor: int) -> None:
        with privileges.wholly_as(uid), suppress(OSError):
            signalling.send(descriptor, number)

    with everything_stopped(uid):
        signalling.to_all(root, send_one)


def _kill(uid: int, root: int, but: Collection[int], found: Stats) -> set[_Identity]:
    """Kills what was found, so far as it is certain to be below `root`; returns that."""
    killed: set[_Identity] = set()

    def chosen(pid: int, stat: Stat) -> bool:
        return pid in found and found[pid].start == stat.start

    def send_one(pid: int, descriptor: int) -> None:
        with privileges.wholly_as(uid), suppress(OSError):
            signalling.send(descriptor, signal.SIGKILL)
        killed.add((pid, found[pid].start))

    signalling.to_all(root, send_one, chosen, but)
    return killed


@contextmanager
def everything_stopped(uid: int) -> Iterator[None]:
    """All processes of the session's user are stopped, as long as none of them is ended."""
    before = _stopped_before()
    try:
        _signal_everything(uid, signal.SIGSTOP)
        yield
    finally:
        _signal_everything(uid, signal.SIGCONT)
        for descriptor in before:
            with privileges.wholly_as(uid), suppress(OSError):
                signalling.send(descriptor, signal.SIGSTOP)
            os.close(descriptor)


def _signal_everything(uid: int, number: int) -> None:
    # There may be nothing that the user may signal.
    with privileges.wholly_as(uid), suppress(ProcessLookupError, PermissionError):
        signalling.kill(-1, number)


def _stopped_before() -> list[int]:
    """Descriptors of the processes that are stopped already, by a shell for example."""
    made = []
    for pid, stat in processes.snapshot().items():
        if stat.state == _STOPPED:
            with suppress(ProcessLookupError):
                made.append(os.pidfd_open(pid))
    return made


def _settled(root: int, but: Collection[int]) -> Stats:
    """The processes below `root` as soon as all forks that had begun are over."""
    until = time.monotonic() + _SETTLE_SECONDS
    while True:
        stats = processes.snapshot()
        found = {pid: stats[pid] for pid in processes.below(root, but, stats)}
        moving = any(stat.state in _MOVING for stat in found.values())
        if not moving or time.monotonic() > until:
            return found
        time.sleep(_LOOK_SECONDS)


def _forbid_forks(uid: int, pids: Collection[int]) -> None:
    with privileges.wholly_as(uid):
        for pid in pids:
            # It may belong to root, as a guard does, or be gone.
            with suppress(ProcessLookupError, PermissionError):
                resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
