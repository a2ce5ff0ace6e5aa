"""The filter's decisions, by an interpreter of its instructions, for each architecture."""

import errno

import pytest

from sandbox_agent.enforce.filters import read_filter
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.filters.seccomp import Filter, program
from tests.support.filters import ALLOW, KILL, NOTIFY, decision

COOKIE = (0xDEADBEEF, 0x01234567)
STRICT = Filter(unnamed_memory=False, interfaces=False, ptrace=False, cookie=COOKIE)
OPEN = Filter(unnamed_memory=True, interfaces=True, ptrace=True, cookie=None)
DENIED = [
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
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
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "memfd_secret",
    "file_setattr",
]
MACHINES = sorted(ARCHITECTURES)


def decide(
    machine: str, wanted: Filter, call: str | int, *arguments: int, audit: int | None = None
) -> object:
    """The filter's decision for a call, as a name or an error number."""
    return decision(program(machine, wanted), machine, call, *arguments, audit=audit)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_calls_of_another_architecture_end_the_process(machine: str) -> None:
    assert decide(machine, OPEN, 1, audit=0x40000003) == KILL  # int 0x80
    if machine == "x86_64":
        assert decide(machine, OPEN, 0x40000000 | 2) == KILL  # x32


@pytest.mark.parametrize("wanted", [STRICT, OPEN])
def test_denied_everywhere(machine: str, wanted: Filter) -> None:
    assert [call for call in DENIED if decide(machine, wanted, call) != errno.EPERM] == []


@pytest.mark.parametrize("call", ["openat2", "clone3", "execveat"])
def test_absent_so_that_programs_use_what_can_be_seen(machine: str, call: str) -> None:
    assert decide(machine, OPEN, call) == errno.ENOSYS


@pytest.mark.parametrize("call", ["memfd_create", "shmget", "semget", "msgget", "mq_open"])
def test_memory_without_a_name(machine: str, call: str) -> None:
    assert decide(machine, STRICT, call) == errno.EPERM
    assert decide(machine, OPEN, call) == ALLOW


def test_tracing_is_for_levels_that_say_so(machine: str) -> None:
    assert decide(machine, STRICT, "ptrace") == errno.EPERM
    assert decide(machine, OPEN, "ptrace") == ALLOW


SOCKETS: list[tuple[tuple[int, ...], object]] = [
    ((1, 1, 0), ALLOW),  # a UNIX socket
    ((2, 1, 0), ALLOW),
    ((2, 1, 6), ALLOW),
    ((10, 2, 17), ALLOW),
    ((2, 2, 1), ALLOW),
    ((10, 2, 58), ALLOW),
    ((2, 1, 262), errno.EPROTONOSUPPORT),  # MPTCP
    ((10, 1, 132), errno.EPROTONOSUPPORT),  # SCTP
    ((2, 0x80001, 6), ALLOW),  # with SOCK_CLOEXEC
    ((2, 3, 255), errno.ESOCKTNOSUPPORT),  # raw
    ((2, 5, 0), errno.ESOCKTNOSUPPORT),  # SCTP, by default
    ((2, 0x80806, 0), errno.ESOCKTNOSUPPORT),  # DCCP, by default
    ((16, 3, 0), errno.EAFNOSUPPORT),  # netlink
    ((17, 3, 0), errno.EAFNOSUPPORT),  # packet
    ((40, 1, 0), errno.EAFNOSUPPORT),  # vsock
    ((0x1_0000_0002, 1, 262), errno.EPROTONOSUPPORT),  # the kernel looks at 32 bits
    ((0x1_0000_0010, 1, 0), errno.EAFNOSUPPORT),
]


def test_sockets(machine: str) -> None:
    for arguments, expected in SOCKETS:
        assert decide(machine, STRICT, "socket", *arguments) == expected, (arguments, expected)


def test_interfaces_are_listed_where_that_is_allowed(machine: str) -> None:
    assert decide(machine, OPEN, "socket", 16, 3, 0) == ALLOW
    assert decide(machine, OPEN, "socket", 16, 3, 9) == errno.EPROTONOSUPPORT  # audit
    assert decide(machine, OPEN, "socket", 17, 3, 0) == errno.EAFNOSUPPORT
    assert decide(machine, OPEN, "socket", 1, 1, 0) == ALLOW
    assert decide(machine, OPEN, "socket", 2, 1, 262) == errno.EPROTONOSUPPORT


def test_pairs_of_sockets_are_local(machine: str) -> None:
    assert decide(machine, STRICT, "socketpair", 1, 1, 0) == ALLOW
    assert decide(machine, STRICT, "socketpair", 2, 1, 0) == errno.EAFNOSUPPORT


@pytest.mark.parametrize("flag", [0x00020000, 0x02000000, 0x04000000, 0x10000000, 0x40000000])
def test_no_process_gets_namespaces(machine: str, flag: int) -> None:
    assert decide(machine, OPEN, "clone", flag | 17) == errno.EPERM
    assert decide(machine, OPEN, "clone", 0x003D0F00) == ALLOW  # a thread
    assert decide(machine, OPEN, "clone", 17) == ALLOW  # fork


OWN_AND_OTHERS: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
    ("setpriority", (1, 0, 5), (2, 0, 5)),  # its process group, all processes of its user
    ("setpriority", (1, 0, 5), (1, 42, 5)),  # another group
    ("ioprio_set", (2, 0, 5), (3, 0, 5)),
    ("ioprio_set", (2, 0, 5), (2, 42, 5)),
    ("ioctl", (0, 0x5413), (0, 0x5412)),
    ("ioctl", (0, 0x5401), (0, 0x541C)),
    ("ioctl", (0, 0x80086601), (0, 0x40086602)),  # a file's flags, read and set
    ("ioctl", (0, 0x801C581F), (0, 0x401C5820)),  # a file's project, read and set
    ("personality", (0xFFFFFFFF,), (0x0400000,)),
]


def test_ones_own_and_others(machine: str) -> None:
    for call, own, others in OWN_AND_OTHERS:
        assert decide(machine, STRICT, call, *own) == ALLOW, (call, own, others)
        assert decide(machine, STRICT, call, *others) == errno.EPERM, (call, own, others)


NUMBERED: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
    ("prlimit64", (0, 7), (42, 7)),
    ("setpriority", (0, 0, 5), (0, 42, 5)),
    ("ioprio_set", (1, 0, 5), (1, 42, 5)),
    ("sched_setaffinity", (0, 8), (42, 8)),
    ("sched_setscheduler", (0, 5), (42, 5)),
    ("sched_setparam", (0,), (42,)),
    ("sched_setattr", (0,), (42,)),
]


def test_a_thread_s_number_is_reported(machine: str) -> None:
    watched = read_filter.program(machine, COOKIE)
    for call, caller, other in NUMBERED:
        assert decide(machine, STRICT, call, *caller) == ALLOW, call
        assert decide(machine, STRICT, call, *other) == NOTIFY, call
        # The kernel asks the listener of one filter only, and that is a broker's.
        brokered = STRICT._replace(listened=False, brokered=True)
        assert decide(machine, brokered, call, *other) == ALLOW, call
        # Nobody is there to ask.
        alone = STRICT._replace(listened=False)
        assert decide(machine, alone, call, *caller) == ALLOW, call
        assert decide(machine, alone, call, *other) == errno.EPERM, call
        assert decision(watched, machine, call, *caller) == ALLOW, call
        assert decision(watched, machine, call, *other) == NOTIFY, call


def test_executions_are_reported_but_for_the_guards_own(machine: str) -> None:
    low, high = COOKIE
    assert decide(machine, STRICT, "execve", 1, 2, 3) == NOTIFY
    assert decide(machine, STRICT, "execve", 1, 2, 3, low, high) == ALLOW
    assert decide(machine, STRICT, "execve", 1, 2, 3, low, high ^ 1) == NOTIFY
    assert decide(machine, STRICT, "execve", 1, 2, 3, low ^ 1, high) == NOTIFY
    assert decide(machine, OPEN, "execve", 1, 2, 3) == ALLOW


def test_everything_else_is_allowed(machine: str) -> None:
    named = set(ARCHITECTURES[machine].calls.values())
    for number in set(range(500)) - named:
        assert decide(machine, STRICT, number) == ALLOW


def test_shared_memory_is_never_executable(machine: str) -> None:
    """Memory with two mappings could be executable in one and writable in the other."""
    read_execute, shared, shared_validated, private = 1 | 4, 1, 3, 2
    for flags in (shared, shared_validated, shared | 0x20):
        assert decide(machine, STRICT, "mmap", 0, 4096, read_execute, flags) == errno.EPERM
        assert decide(machine, STRICT, "mmap", 0, 4096, 1 | 2, flags) == ALLOW
    # The loader maps libraries in this way.
    assert decide(machine, STRICT, "mmap", 0, 4096, read_execute, private) == ALLOW
    free = STRICT._replace(writable_code=True)
    assert decide(machine, free, "mmap", 0, 4096, read_execute, shared) == ALLOW
