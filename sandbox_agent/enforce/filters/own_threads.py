"""Calls with which a program sets scheduling, priority or limits, and names a thread by its number.

Zero is the caller itself. Another number may belong to another command of the session, which has
the same user, so the kernel would permit it, and a filter can't compare numbers. The filter lets
the call wait, and `answer` decides: a program may name the threads of its own process.
"""

import errno
import os

from sandbox_agent.enforce import notify
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.filters.bpf import ALLOWED, JUMP_EQUAL, Block, loaded, refused, returned
from sandbox_agent.enforce.notify import Notice

# Where the number is among the arguments; before it may be what kind of number it is.
_NUMBER_AT = {
    "prlimit64": 0,
    "sched_setaffinity": 0,
    "sched_setattr": 0,
    "sched_setparam": 0,
    "sched_setscheduler": 0,
    "setpriority": 1,
    "ioprio_set": 1,
}
# The kinds: a single thread, and all that its user runs. Others are process groups.
_KINDS = {"setpriority": (0, 2), "ioprio_set": (1, 3)}
_INT = 0xFFFFFFFF


def names(machine: str) -> dict[int, str]:
    """The names of these calls, by their numbers on that architecture."""
    numbers = ARCHITECTURES[machine].calls
    return {numbers[name]: name for name in _NUMBER_AT}


def blocks(action: int) -> list[tuple[str, Block]]:
    """The filter's checks: `action` is for a thread's number, and the caller is allowed."""
    return [(name, _block(name, at, action)) for name, at in _NUMBER_AT.items()]


def _block(name: str, at: int, action: int) -> Block:
    if name not in _KINDS:
        return [loaded(at), (JUMP_EQUAL, 0, 1, 0), ALLOWED, returned(action)]
    thread, user = _KINDS[name]
    return [
        loaded(0),
        (JUMP_EQUAL, 3, 0, user),
        (JUMP_EQUAL, 3, 0, thread),
        loaded(at),
        (JUMP_EQUAL, 3, 0, 0),
        returned(refused(errno.EPERM)),
        loaded(at),
        (JUMP_EQUAL, 0, 1, 0),
        ALLOWED,
        returned(action),
    ]


def answer(listener: int, notice: Notice, name: str) -> None:
    """Lets the call go on if it names a thread of the caller's own process. Raises: OSError."""
    number = notice.arguments[_NUMBER_AT[name]] & _INT
    if is_own(notice.pid, number):
        notify.let_go_on(listener, notice)
    else:
        notify.refuse(listener, notice, errno.EPERM)


def is_own(caller: int, number: int) -> bool:
    """Whether that number is the calling thread, or another of its process.

    The caller waits, so its own number stays its own. Another thread may end right now, and its
    number be given away before the kernel looks; but numbers are handed out in order, so all others
    would have to be used up within that moment.
    """
    return number == caller or os.path.exists(f"/proc/{caller}/task/{number}")
