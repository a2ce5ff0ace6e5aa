"""The system calls that no command can make, as a filter program for the kernel.

The engine's default profile denies many of them too, but this filter does not depend on a profile,
engine or runtime. It is a list of denials: it does not restrict what a program computes, only ways
around the other layers. `mdwe`, Landlock and the uid do the rest.
"""

import ctypes
import os
import struct
from typing import NamedTuple

from sandbox_agent.confine.architectures import ARCHITECTURES
from sandbox_agent.confine.syscalls import checked

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_MODE_FILTER = 1
_GET_ACTION_AVAIL = 2
_NEW_LISTENER = 8

_KILL_PROCESS = 0x80000000
_USER_NOTIF = 0x7FC00000
_ERRNO = 0x00050000
_ALLOW = 0x7FFF0000
_EPERM = _ERRNO | 1
_ENOSYS = _ERRNO | 38
_EPROTONOSUPPORT = _ERRNO | 93
_ESOCKTNOSUPPORT = _ERRNO | 94
_EAFNOSUPPORT = _ERRNO | 97

# Instructions of classic BPF.
_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_NOT_LESS = 0x35
_JUMP_ANY_BIT = 0x45
_AND = 0x54
_RETURN = 0x06
_INSTRUCTION = struct.Struct("<HBBI")
# Offsets in the kernel's `struct seccomp_data`.
_NUMBER_AT = 0
_ARCHITECTURE_AT = 4
_ARGUMENTS_AT = 16


# Calls that run code without a path, look into other processes, or change mounts or identity, and
# interfaces of the kernel that have had many flaws and that no command needs.
_DENIED = (
    "memfd_secret",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "process_madvise",
    "kcmp",
    "move_pages",
    "migrate_pages",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "open_tree_attr",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "unshare",
    "setns",
    "bpf",
    "userfaultfd",
    "perf_event_open",
    "keyctl",
    "add_key",
    "request_key",
    "name_to_handle_at",
    "open_by_handle_at",
    "uselib",
    "file_setattr",
)
# Without these, programs fall back to older calls whose arguments a filter can see.
_ABSENT = ("openat2", "clone3", "execveat")
# Memory without a path: it could be executed, and it outlives its command.
_UNNAMED_MEMORY = ("memfd_create", "shmget", "semget", "msgget", "mq_open")
# They take a thread number, which may belong to another command; 0 is the caller.
_SCHEDULING = ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW… flag that `clone` takes
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_STREAM, _DATAGRAM, _KINDS = 1, 2, 0xF  # _KINDS masks out the flags
_PROTOCOLS = (0, 1, 6, 17, 58)  # any, ICMP, TCP, UDP, ICMPv6; not MPTCP, SCTP, DCCP or raw
# Input pushed into a terminal would reach the next program that reads from it.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# The owner of a file could assign it to another project, and so to another quota.
_FS_SETFLAGS, _FS_SETXATTR = 0x40086602, 0x401C5820
_IOCTLS = (_TIOCSTI, _TIOCLINUX, _FS_SETFLAGS, _FS_SETXATTR)
_PROT_EXEC, _MAP_SHARED = 4, 1
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3
_PERSONALITIES = (0, 0xFFFFFFFF)  # the usual one, and the query for the current one

Block = list[tuple[int, int, int, int]]


class Filter(NamedTuple):
    """The optional parts of the filter.

    With `cookie`, a call of execve is reported to the listener unless its unused fourth and fifth
    arguments are these two 32-bit numbers. The guard passes them for what is already recorded. With
    `interfaces`, the network interfaces can be listed, as many programs do when they start. Without
    `writable_code`, shared memory is not executable: the kernel checks each mapping alone, so one
    mapping could be executable while another is written.
    """

    unnamed_memory: bool
    interfaces: bool
    ptrace: bool
    cookie: tuple[int, int] | None
    writable_code: bool = False


def available(machine: str) -> bool:
    """Whether this kernel supports filters that report calls to a listener."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return False
    action = ctypes.c_uint32(_USER_NOTIF)
    return bool(
        _LIBC.syscall(architecture.seccomp, _GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0
    )


def program(machine: str, wanted: Filter) -> bytes:
    """The filter as instructions. Raises: KeyError for an architecture without numbers."""
    architecture = ARCHITECTURES[machine]
    code: Block = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if architecture.x32 is not None:
        code += [(_JUMP_NOT_LESS, 0, 1, architecture.x32), (_RETURN, 0, 0, _KILL_PROCESS)]
    for name, block in _blocks(wanted):
        number = architecture.calls.get(name)
        if number is not None:
            code += [(_JUMP_EQUAL, 0, len(block), number), *block]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


def _blocks(wanted: Filter) -> list[tuple[str, Block]]:
    """The checks for each call; every block ends in returns."""
    denied = list(_DENIED)
    if not wanted.unnamed_memory:
        denied += _UNNAMED_MEMORY
    if not wanted.ptrace:
        denied.append("ptrace")
    blocks: list[tuple[str, Block]] = [
        ("socket", _socket(wanted.interfaces)),
        ("socketpair", _unless_equal(0, (_AF_UNIX,), _EAFNOSUPPORT)),
        ("clone", [_load(0), (_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES), _return(_EPERM), _ALLOWED]),
        ("ioctl", _if_equal(1, _IOCTLS, _EPERM)),
        ("personality", _unless_equal(0, _PERSONALITIES, _EPERM)),
        # A command may set its own limits and priorities, but not those of another command.
        ("prlimit64", _unless_equal(0, (0,), _EPERM)),
        ("setpriority", _unless_own(_PRIO_USER)),
        ("ioprio_set", _unless_own(_IOPRIO_WHO_USER)),
        *((name, _unless_equal(0, (0,), _EPERM)) for name in _SCHEDULING),
    ]
    if not wanted.writable_code:
        blocks.append(("mmap", _SHARED_CODE))
    blocks += [(name, [_return(_EPERM)]) for name in denied]
    blocks += [(name, [_return(_ENOSYS)]) for name in _ABSENT]
    if wanted.cookie is not None:
        blocks.append(("execve", _reported(wanted.cookie)))
    return blocks


def _load(argument: int, high: bool = False) -> tuple[int, int, int, int]:
    return _LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument + (4 if high else 0)


def _return(action: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, action


_ALLOWED = _return(_ALLOW)


def _if_equal(argument: int, values: tuple[int, ...], action: int) -> Block:
    return _choice(argument, values, action, _ALLOW)


def _unless_equal(argument: int, values: tuple[int, ...], action: int) -> Block:
    return _choice(argument, values, _ALLOW, action)


def _unless_own(whole_user: int) -> Block:
    """Refuses other targets than the caller: other processes, and the user as a whole."""
    return [
        _load(0),
        (_JUMP_EQUAL, 2, 0, whole_user),
        _load(1),
        (_JUMP_EQUAL, 1, 0, 0),
        _return(_EPERM),
        _ALLOWED,
    ]


def _choice(argument: int, values: tuple[int, ...], equal: int, other: int) -> Block:
    """Compares 32 bits, which is all that the kernel uses of these arguments."""
    count = len(values)
    tests = [(_JUMP_EQUAL, count - i, 0, value) for i, value in enumerate(values)]
    return [_load(argument), *tests, _return(other), _return(equal)]


_INTERNET: Block = [
    # Other socket kinds have a default protocol that is not allowed.
    _load(1),
    (_AND, 0, 0, _KINDS),
    (_JUMP_EQUAL, 2, 0, _STREAM),
    (_JUMP_EQUAL, 1, 0, _DATAGRAM),
    _return(_ESOCKTNOSUPPORT),
    *_choice(2, _PROTOCOLS, _ALLOW, _EPROTONOSUPPORT),
]
_NETLINK = _choice(2, (_NETLINK_ROUTE,), _ALLOW, _EPROTONOSUPPORT)


def _socket(interfaces: bool) -> Block:
    netlink: Block = [(_JUMP_EQUAL, 0, len(_NETLINK), _AF_NETLINK), *_NETLINK]
    return [
        _load(0),
        (_JUMP_EQUAL, 0, 1, _AF_UNIX),
        _ALLOWED,
        *(netlink if interfaces else []),
        (_JUMP_EQUAL, 2, 0, _AF_INET),
        (_JUMP_EQUAL, 1, 0, _AF_INET6),
        _return(_EAFNOSUPPORT),
        *_INTERNET,
    ]


_SHARED_CODE: Block = [
    _load(2),
    (_JUMP_ANY_BIT, 0, 3, _PROT_EXEC),
    _load(3),
    (_JUMP_ANY_BIT, 0, 1, _MAP_SHARED),
    _return(_EPERM),
    _ALLOWED,
]


def _reported(cookie: tuple[int, int]) -> Block:
    low, high = cookie
    return [
        _load(3),
        (_JUMP_EQUAL, 0, 3, low),
        _load(4),
        (_JUMP_EQUAL, 0, 1, high),
        _ALLOWED,
        _return(_USER_NOTIF),
    ]


class _Program(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install(machine: str, code: bytes, listen: bool) -> int | None:
    """Permanently installs the filter for this process and all that it starts.

    Returns the listener's descriptor if `listen` is set. Raises: OSError.
    """
    filter_program = _Program(len(code) // _INSTRUCTION.size, code)
    flags = _NEW_LISTENER if listen else 0
    number = ARCHITECTURES[machine].seccomp
    made = _LIBC.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(filter_program))
    fd = checked(int(made))
    if not listen:
        return None
    os.set_inheritable(fd, False)
    return fd
