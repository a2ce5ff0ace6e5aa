"""The system calls that no command can make, as a filter program for the kernel.

The engine's default profile denies many of them too, but this filter does not depend on a profile,
engine or runtime. It is a list of denials: it does not restrict what a program computes, only ways
around the other layers. `mdwe`, Landlock and the uid do the rest. `substitutes` has what stands for
them on older kernels.
"""

import ctypes
import errno
import os
from typing import NamedTuple

from sandbox_agent.enforce.filters import bpf, own_threads, root_calls, signals, substitutes
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.filters.bpf import (
    ALLOW,
    ALLOWED,
    AND,
    JUMP_ANY_BIT,
    JUMP_EQUAL,
    USER_NOTIF,
    Block,
    loaded,
    refused,
    returned,
)
from sandbox_agent.enforce.syscalls import checked

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_MODE_FILTER = 1
_GET_ACTION_AVAIL = 2
_NEW_LISTENER = 8
_WAIT_KILLABLE = 0x20

_EPERM = refused(1)
_ENOSYS = refused(38)
_EPROTONOSUPPORT = refused(93)
_ESOCKTNOSUPPORT = refused(94)
_EAFNOSUPPORT = refused(97)

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
_PROT_EXEC, _MAP_SHARED, _SHM_EXEC = 4, 1, 0o100000
_PERSONALITIES = (0, 0xFFFFFFFF)  # the usual one, and the query for the current one


class Filter(NamedTuple):
    """The optional parts of the filter.

    With `cookie`, a call of execve is reported to the listener unless its unused fourth and fifth
    arguments are these two 32-bit numbers. The guard passes them for what is already recorded. With
    `interfaces`, the network interfaces can be listed, as many programs do when they start. Without
    `writable_code`, shared memory is not executable: the kernel checks each mapping alone, so one
    mapping could be executable while another is written. Without `listened`, nothing is reported:
    a second filter does that if it is `brokered`, else what a listener would decide is refused,
    but for signals. With `signals`, signals to others are reported, unless the guard
    sends them: then unused arguments are these two numbers. Without `mdwe` and `truncation`, the
    filter refuses what the kernel itself would refuse if it were newer. With `entry`, commands are
    root of a user namespace, which the guard enters by a call with these two numbers.
    """

    unnamed_memory: bool
    interfaces: bool
    ptrace: bool
    cookie: tuple[int, int] | None
    writable_code: bool = False
    listened: bool = True
    brokered: bool = False
    signals: tuple[int, int] | None = None
    mdwe: bool = True
    truncation: bool = True
    entry: tuple[int, int] | None = None


def available(machine: str) -> bool:
    """Whether this kernel supports filters that report calls to a listener."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return False
    action = ctypes.c_uint32(USER_NOTIF)
    return bool(
        _LIBC.syscall(architecture.seccomp, _GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0
    )


def waits_undisturbed(machine: str) -> bool:
    """Whether this kernel supports listeners whose calls no signal interrupts."""
    # With a filter that can't be read, the kernel checks the flags first.
    number = ARCHITECTURES[machine].seccomp
    _LIBC.syscall(number, _SET_MODE_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, None)
    return ctypes.get_errno() == errno.EFAULT


def program(machine: str, wanted: Filter) -> bytes:
    """The filter as instructions. Raises: KeyError for an architecture without numbers."""
    return bpf.program(ARCHITECTURES[machine], _blocks(wanted))


def _blocks(wanted: Filter) -> list[tuple[str, Block]]:
    """The checks for each call; every block ends in returns."""
    denied = list(_DENIED)
    if not wanted.unnamed_memory:
        denied += _UNNAMED_MEMORY
    if not wanted.ptrace:
        denied.append("ptrace")
    ioctls = _IOCTLS if wanted.signals is None else _IOCTLS + signals.OWNER_IOCTLS
    blocks: list[tuple[str, Block]] = [
        ("socket", _socket(wanted.interfaces)),
        ("socketpair", _unless_equal(0, (_AF_UNIX,), _EAFNOSUPPORT)),
        ("clone", [loaded(0), (JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES), returned(_EPERM), ALLOWED]),
        ("ioctl", _if_equal(1, ioctls, _EPERM)),
        ("personality", _unless_equal(0, _PERSONALITIES, _EPERM)),
        # A command may set its own limits and priorities, but not those of another command.
        *own_threads.blocks(_decision(wanted)),
    ]
    if wanted.entry is not None:
        blocks += root_calls.blocks(wanted.entry)
    if wanted.signals is not None and wanted.listened:
        blocks += signals.blocks(wanted.signals)
    if not wanted.writable_code:
        blocks += [("mmap", _shared_code(wanted.mdwe)), ("shmat", _SEGMENT_OF_CODE)]
        if not wanted.mdwe:
            blocks += substitutes.GAINED_CODE
    if not wanted.truncation:
        blocks += substitutes.truncation(opens=not wanted.brokered)
    blocks += [(name, [returned(_EPERM)]) for name in denied]
    blocks += [(name, [returned(_ENOSYS)]) for name in _ABSENT]
    if wanted.cookie is not None:
        blocks.append(("execve", bpf.unless_marked(3, wanted.cookie)))
    return blocks


def _decision(wanted: Filter) -> int:
    """What becomes of a call that only a listener can decide."""
    if wanted.listened:
        return USER_NOTIF
    return ALLOW if wanted.brokered else _EPERM


def _if_equal(argument: int, values: tuple[int, ...], action: int) -> Block:
    return _choice(argument, values, action, ALLOW)


def _unless_equal(argument: int, values: tuple[int, ...], action: int) -> Block:
    return _choice(argument, values, ALLOW, action)


def _choice(argument: int, values: tuple[int, ...], equal: int, other: int) -> Block:
    """Compares 32 bits, which is all that the kernel uses of these arguments."""
    count = len(values)
    tests = [(JUMP_EQUAL, count - i, 0, value) for i, value in enumerate(values)]
    return [loaded(argument), *tests, returned(other), returned(equal)]


_INTERNET: Block = [
    # Other socket kinds have a default protocol that is not allowed.
    loaded(1),
    (AND, 0, 0, _KINDS),
    (JUMP_EQUAL, 2, 0, _STREAM),
    (JUMP_EQUAL, 1, 0, _DATAGRAM),
    returned(_ESOCKTNOSUPPORT),
    *_choice(2, _PROTOCOLS, ALLOW, _EPROTONOSUPPORT),
]
_NETLINK = _choice(2, (_NETLINK_ROUTE,), ALLOW, _EPROTONOSUPPORT)


def _socket(interfaces: bool) -> Block:
    netlink: Block = [(JUMP_EQUAL, 0, len(_NETLINK), _AF_NETLINK), *_NETLINK]
    return [
        loaded(0),
        (JUMP_EQUAL, 0, 1, _AF_UNIX),
        ALLOWED,
        *(netlink if interfaces else []),
        (JUMP_EQUAL, 2, 0, _AF_INET),
        (JUMP_EQUAL, 1, 0, _AF_INET6),
        returned(_EAFNOSUPPORT),
        *_INTERNET,
    ]


def _shared_code(mdwe: bool) -> Block:
    """Refuses executable mappings that are shared, and without `mdwe` those that are writable."""
    private = [] if mdwe else substitutes.WRITABLE_CODE
    return [
        loaded(2),
        (JUMP_ANY_BIT, 0, 3 + len(private), _PROT_EXEC),
        loaded(3),
        (JUMP_ANY_BIT, 0, 1, _MAP_SHARED),
        returned(_EPERM),
        *private,
        ALLOWED,
    ]


_SEGMENT_OF_CODE: Block = [loaded(2), (JUMP_ANY_BIT, 0, 1, _SHM_EXEC), returned(_EPERM), ALLOWED]


class _Program(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install(machine: str, code: bytes, listen: bool, *, undisturbed: bool = False) -> int | None:
    """Permanently installs the filter for this process and all that it starts.

    Returns the listener's descriptor if `listen` is set. `undisturbed`: once a reported call was
    received, only a fatal signal interrupts it (Linux 5.19 or later). Raises: OSError.
    """
    filter_program = _Program(len(code) // bpf.INSTRUCTION.size, code)
    flags = (_NEW_LISTENER if listen else 0) | (_WAIT_KILLABLE if undisturbed else 0)
    number = ARCHITECTURES[machine].seccomp
    made = _LIBC.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(filter_program))
    fd = checked(int(made))
    if not listen:
        return None
    os.set_inheritable(fd, False)
    return fd
