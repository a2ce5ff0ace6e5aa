"""The system calls that no command can make, as a filter program for the kernel.

The engine's default profile denies many of them too; this filter does not depend on which
profile, engine or runtime there is. It is a list of denials: what a program may compute is
not restricted, only the ways around the other layers are. `mdwe`, Landlock, and the uid do
the rest.
"""

import ctypes
import os
import struct
from typing import NamedTuple

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
_EAFNOSUPPORT = _ERRNO | 97

# Instructions of classic BPF.
_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_NOT_LESS = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_INSTRUCTION = struct.Struct("<HBBI")
# Offsets in the kernel's `struct seccomp_data`.
_NUMBER_AT = 0
_ARCHITECTURE_AT = 4
_ARGUMENTS_AT = 16


class Architecture(NamedTuple):
    """An architecture's own numbers; at `x32` begin the calls of another ABI, if it has one."""

    audit: int
    x32: int | None
    seccomp: int
    calls: dict[str, int]


# These have one number on every architecture.
_SHARED = {
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "open_tree_attr": 467,
    "memfd_secret": 447,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "clone3": 435,
    "openat2": 437,
}
ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        x32=0x40000000,
        seccomp=317,
        calls={
            **_SHARED,
            "ioctl": 16,
            "shmget": 29,
            "socket": 41,
            "socketpair": 53,
            "clone": 56,
            "execve": 59,
            "semget": 64,
            "msgget": 68,
            "ptrace": 101,
            "uselib": 134,
            "personality": 135,
            "setpriority": 141,
            "pivot_root": 155,
            "chroot": 161,
            "mount": 165,
            "umount2": 166,
            "mq_open": 240,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "ioprio_set": 251,
            "migrate_pages": 256,
            "unshare": 272,
            "move_pages": 279,
            "perf_event_open": 298,
            "prlimit64": 302,
            "name_to_handle_at": 303,
            "open_by_handle_at": 304,
            "setns": 308,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "kcmp": 312,
            "memfd_create": 319,
            "bpf": 321,
            "execveat": 322,
            "userfaultfd": 323,
        },
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        x32=None,
        seccomp=277,
        calls={
            **_SHARED,
            "ioctl": 29,
            "ioprio_set": 30,
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "chroot": 51,
            "personality": 92,
            "unshare": 97,
            "ptrace": 117,
            "setpriority": 140,
            "mq_open": 180,
            "msgget": 186,
            "semget": 190,
            "shmget": 194,
            "socket": 198,
            "socketpair": 199,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "clone": 220,
            "execve": 221,
            "migrate_pages": 238,
            "move_pages": 239,
            "perf_event_open": 241,
            "prlimit64": 261,
            "name_to_handle_at": 264,
            "open_by_handle_at": 265,
            "setns": 268,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "kcmp": 272,
            "memfd_create": 279,
            "bpf": 280,
            "execveat": 281,
            "userfaultfd": 282,
        },
    ),
}

# Ways to run what no path names, to look into other processes, to change what is mounted or
# who one is, and interfaces of the kernel that have had many flaws and serve no command.
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
)
# Programs fall back to older calls, whose arguments a filter can see.
_ABSENT = ("openat2", "clone3", "execveat")
# Memory that no path names: it could be executed, and outlives its command.
_UNNAMED_MEMORY = ("memfd_create", "shmget", "semget", "msgget", "mq_open")
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW… flag that `clone` takes
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_PROTOCOLS = (0, 1, 6, 17, 58)  # any, ICMP, TCP, UDP, ICMPv6; not MPTCP, SCTP, DCCP or raw
# Input pushed into a terminal would be read by whoever reads from it next.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PERSONALITIES = (0, 0xFFFFFFFF)  # the usual one, and the question which it is

Block = list[tuple[int, int, int, int]]


class Filter(NamedTuple):
    """What is filtered besides what always is.

    With `cookie`, a call of execve is reported to the listener unless its unused fourth and
    fifth arguments are these two 32-bit numbers: the guard's own, of what is known already.
    """

    unnamed_memory: bool
    ptrace: bool
    cookie: tuple[int, int] | None


def available(machine: str) -> bool:
    """Whether this kernel has filters, and reports calls to a listener."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return False
    action = ctypes.c_uint32(_USER_NOTIF)
    return bool(
        _LIBC.syscall(architecture.seccomp, _GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0
    )


def program(machine: str, wanted: Filter) -> bytes:
    """The filter, as instructions. Raises: KeyError for an architecture without numbers."""
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
    """What is done at each call; every block ends in returns."""
    denied = list(_DENIED)
    if not wanted.unnamed_memory:
        denied += _UNNAMED_MEMORY
    if not wanted.ptrace:
        denied.append("ptrace")
    blocks: list[tuple[str, Block]] = [
        ("socket", _SOCKET),
        ("socketpair", _unless_equal(0, (_AF_UNIX,), _EAFNOSUPPORT)),
        ("clone", [_load(0), (_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES), _return(_EPERM), _ALLOWED]),
        ("ioctl", _if_equal(1, (_TIOCSTI, _TIOCLINUX), _EPERM)),
        ("personality", _unless_equal(0, _PERSONALITIES, _EPERM)),
        # Limits and priorities are one's own to set, not those of another command.
        ("prlimit64", _unless_equal(0, (0,), _EPERM)),
        ("setpriority", _unless_equal(1, (0,), _EPERM)),
        ("ioprio_set", _unless_equal(1, (0,), _EPERM)),
    ]
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


def _choice(argument: int, values: tuple[int, ...], equal: int, other: int) -> Block:
    """The kernel takes 32 bits of each argument that is looked at here."""
    count = len(values)
    tests = [(_JUMP_EQUAL, count - i, 0, value) for i, value in enumerate(values)]
    return [_load(argument), *tests, _return(other), _return(equal)]


_INTERNET = _choice(2, _PROTOCOLS, _ALLOW, _EPROTONOSUPPORT)
_SOCKET: Block = [
    _load(0),
    (_JUMP_EQUAL, 3, 0, _AF_UNIX),
    (_JUMP_EQUAL, 3, 0, _AF_INET),
    (_JUMP_EQUAL, 2, 0, _AF_INET6),
    _return(_EAFNOSUPPORT),
    _ALLOWED,
    *_INTERNET,
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
    """Puts this process, and all that it starts, under the filter, for good.

    Returns the listener's descriptor where `listen`. Raises: OSError.
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


def execute(
    machine: str, path: str, argv: list[str], env: dict[str, str], cookie: tuple[int, int] | None
) -> None:
    """As `os.execve`, but not reported where this is the filter's cookie. Raises: OSError."""
    if cookie is None:
        os.execve(path, argv, env)  # noqa: S606 - no shell is the point
    words = [os.fsencode(word) for word in argv]
    variables = [os.fsencode(f"{name}={value}") for name, value in env.items()]
    if any(b"\0" in text for text in (*words, *variables)):
        raise ValueError("embedded null byte")
    _LIBC.syscall(
        ARCHITECTURES[machine].calls["execve"],
        os.fsencode(path),
        (ctypes.c_char_p * (len(words) + 1))(*words, None),
        (ctypes.c_char_p * (len(variables) + 1))(*variables, None),
        ctypes.c_long(cookie[0]),
        ctypes.c_long(cookie[1]),
    )
    checked(-1, path)
