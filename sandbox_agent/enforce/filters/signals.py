"""Calls with which a process signals another, or lets the kernel do so. Pure.

Landlock's scopes keep signals inside a command. Without them, all commands of a session have the
same user, so the kernel would permit a signal to any of them. The filter lets these calls wait, and
the agent decides and sends (`signal_requests.py`). A call that names no process is not reported:
`kill(0, …)` reaches the caller's process group, which is part of its command's own session.
"""

import errno
import struct
from typing import NamedTuple

from sandbox_agent.enforce.filters import bpf
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.filters.bpf import (
    ALLOWED,
    JUMP_EQUAL,
    USER_NOTIF,
    Block,
    loaded,
    refused,
    returned,
)

# A guard passes its mark in these arguments, which the kernel does not use.
MARK_AT = {"kill": 2, "pidfd_send_signal": 4}
_REPORTED = ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
_F_SETOWN, _F_SETOWN_EX = 8, 15
# FIOSETOWN and SIOCSPGRP: like F_SETOWN, but for a number in memory, which no filter can judge.
OWNER_IOCTLS = (0x8901, 0x8902)
# The only siginfo that a process may invent for another has a negative code, and not this one.
_SI_TKILL, _SI_QUEUE = -6, -1
INFO_BYTES = 128
# signal, errno, code, padding, sender's pid, sender's uid, value
_INFO = struct.Struct("<iiiiiIQ")
_HEAD = struct.Struct("<iii")
# Every process of the command.
ALL = -1


class Wanted(NamedTuple):
    """What one call asks for.

    `target` is a process, a group as a negative number, or `ALL`; None if a descriptor names it.
    `thread`: only this thread of it; `target` is then None if the call leaves the process open.
    `info` is the address of the caller's siginfo, `named` whether the kernel checks the signal in
    it. `setting`: the call names the owner of a descriptor and sends nothing.
    """

    target: int | None
    number: int
    thread: int | None = None
    descriptor: int | None = None
    info: int = 0
    named: bool = False
    setting: bool = False


class InvalidCallError(Exception):
    """The kernel would refuse the arguments with EINVAL."""


def names(machine: str) -> dict[int, str]:
    """The names of these calls, by their numbers on that architecture."""
    numbers = ARCHITECTURES[machine].calls
    return {numbers[name]: name for name in (*MARK_AT, *_REPORTED, "fcntl")}


def blocks(mark: tuple[int, int] | None) -> list[tuple[str, Block]]:
    """The filter's checks; what has the mark is not reported."""
    own_group = [loaded(0), (JUMP_EQUAL, 0, 1, 0), ALLOWED]
    return [
        ("kill", [*own_group, *_unless_marked("kill", mark)]),
        ("pidfd_send_signal", _unless_marked("pidfd_send_signal", mark)),
        *((name, [returned(USER_NOTIF)]) for name in _REPORTED),
        ("fcntl", _OWNER),
    ]


def _unless_marked(name: str, mark: tuple[int, int] | None) -> Block:
    return [returned(USER_NOTIF)] if mark is None else bpf.unless_marked(MARK_AT[name], mark)


_OWNER: Block = [
    loaded(1),
    (JUMP_EQUAL, 0, 1, _F_SETOWN_EX),
    returned(refused(errno.EPERM)),
    (JUMP_EQUAL, 0, 3, _F_SETOWN),
    loaded(2),
    (JUMP_EQUAL, 1, 0, 0),
    returned(USER_NOTIF),
    ALLOWED,
]


def wanted(name: str, arguments: tuple[int, ...]) -> Wanted:
    """What the call asks for. Raises: InvalidCallError."""
    first, second, third, fourth = (_int(each) for each in arguments[:4])
    if name == "kill":
        return Wanted(first, second)
    if name == "fcntl":
        return Wanted(third, 0, setting=True)
    if name == "pidfd_send_signal":
        if fourth:
            raise InvalidCallError
        return Wanted(None, second, descriptor=first, info=arguments[2], named=True)
    if name == "rt_sigqueueinfo":
        return Wanted(max(first, 0), second, info=arguments[2])
    if first <= 0 or (name != "tkill" and second <= 0):
        raise InvalidCallError
    if name == "tkill":
        return Wanted(None, second, thread=first)
    info = arguments[3] if name == "rt_tgsigqueueinfo" else 0
    return Wanted(first, third, thread=second, info=info)


def may_go_on(wanted: Wanted, process: int, thread: int) -> bool:
    """Whether the call certainly concerns the calling thread's own process.

    The caller waits, so these two numbers stay its own until the kernel looks.
    """
    if wanted.descriptor is not None:
        return False  # another thread could exchange the descriptor
    if wanted.thread is not None:
        return wanted.target == process or wanted.thread in (process, thread)
    return wanted.target == process or (wanted.target == thread and not wanted.setting)


def sent_by(number: int, pid: int, uid: int) -> bytes:
    """The siginfo of a signal without a value, by that process."""
    try:
        return _INFO.pack(number, 0, _SI_QUEUE, 0, pid, uid, 0).ljust(INFO_BYTES, b"\0")
    except struct.error:
        raise InvalidCallError from None


def checked_info(wanted: Wanted, info: bytes) -> bytes:
    """The caller's siginfo with the signal's number in it.

    Raises: InvalidCallError; PermissionError for one that only the kernel may send.
    """
    number, error, code = _HEAD.unpack_from(info)
    if wanted.named and number != wanted.number:
        raise InvalidCallError
    if code >= 0 or code == _SI_TKILL:
        raise PermissionError(errno.EPERM, "siginfo of the kernel")
    return _HEAD.pack(wanted.number, error, code) + info[_HEAD.size :]


def _int(value: int) -> int:
    """What the kernel makes of an argument that is an int."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
