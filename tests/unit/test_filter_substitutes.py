"""The filter's substitutes for what newer kernels refuse themselves, for each architecture."""

import errno
import os

import pytest

from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.filters.seccomp import Filter, program
from sandbox_agent.enforce.filters.substitutes import truncates_unseen
from tests.support.filters import ALLOW, NOTIFY, decision

COOKIE = (0xDEADBEEF, 0x01234567)
NEW = Filter(unnamed_memory=False, interfaces=False, ptrace=False, cookie=COOKIE)
OLD = NEW._replace(mdwe=False, truncation=False)
READ, WRITE, EXECUTE, KEPT_BELOW = 1, 2, 4, 0x01000000
PRIVATE, SHARED, ANONYMOUS, FIXED = 2, 1, 0x20, 0x10
MACHINES = sorted(ARCHITECTURES)
OPENS = [
    (machine, name, at)
    for machine in MACHINES
    for name, at in (("open", 1), ("openat", 2))
    if name in ARCHITECTURES[machine].calls
]


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def decide(machine: str, wanted: Filter, call: str, *arguments: int) -> object:
    return decision(program(machine, wanted), machine, call, *arguments)


def test_memory_is_never_writable_and_executable_at_once(machine: str) -> None:
    for flags in (PRIVATE, PRIVATE | ANONYMOUS, PRIVATE | FIXED):
        for protection in (WRITE | EXECUTE, READ | WRITE | EXECUTE, 1 << 32 | WRITE | EXECUTE):
            asked = (0, 4096, protection, flags)
            assert decide(machine, OLD, "mmap", *asked) == errno.EACCES, asked
            # The kernel refuses it itself.
            assert decide(machine, NEW, "mmap", *asked) == ALLOW, asked


def test_what_loaders_map_is_mapped(machine: str) -> None:
    for protection in (0, READ, READ | WRITE, READ | EXECUTE, EXECUTE):
        for flags in (PRIVATE, PRIVATE | FIXED, PRIVATE | ANONYMOUS):
            assert decide(machine, OLD, "mmap", 0, 4096, protection, flags) == ALLOW
    assert decide(machine, OLD, "mmap", 0, 4096, READ | WRITE, SHARED) == ALLOW
    assert decide(machine, OLD, "mmap", 0, 4096, READ | EXECUTE, SHARED) == errno.EPERM


@pytest.mark.parametrize("call", ["mprotect", "pkey_mprotect"])
def test_memory_never_becomes_executable(machine: str, call: str) -> None:
    for protection in (EXECUTE, READ | EXECUTE, READ | WRITE | EXECUTE, KEPT_BELOW | EXECUTE):
        assert decide(machine, OLD, call, 0, 4096, protection, -1 & 0xFFFFFFFF) == errno.EACCES
        assert decide(machine, NEW, call, 0, 4096, protection) == ALLOW
    for protection in (0, READ, READ | WRITE, KEPT_BELOW | READ | WRITE):
        assert decide(machine, OLD, call, 0, 4096, protection) == ALLOW


@pytest.mark.parametrize("wanted", [OLD, NEW])
def test_segments_are_never_executable(machine: str, wanted: Filter) -> None:
    assert decide(machine, wanted, "shmat", 7, 0, 0o100000) == errno.EPERM
    assert decide(machine, wanted, "shmat", 7, 0, 0o110000) == errno.EPERM
    assert decide(machine, wanted, "shmat", 7, 0, 0o010000) == ALLOW
    assert decide(machine, wanted._replace(writable_code=True), "shmat", 7, 0, 0o100000) == ALLOW


def test_levels_with_writable_code_compile_just_in_time(machine: str) -> None:
    free = OLD._replace(writable_code=True)
    everything = READ | WRITE | EXECUTE
    assert decide(machine, free, "mmap", 0, 4096, everything, PRIVATE | ANONYMOUS) == ALLOW
    for call in ("mprotect", "pkey_mprotect"):
        assert decide(machine, free, call, 0, 4096, everything) == ALLOW


@pytest.mark.parametrize(("machine", "name", "at"), OPENS)
def test_no_open_truncates_without_the_right_to_write(machine: str, name: str, at: int) -> None:
    def asked(wanted: Filter, flags: int) -> object:
        return decide(machine, wanted, name, *[0] * at, flags)

    for access in (os.O_RDONLY, os.O_ACCMODE):
        for more in (0, os.O_CREAT, os.O_NOFOLLOW, os.O_CLOEXEC | os.O_APPEND):
            flags = access | more | os.O_TRUNC
            assert asked(OLD, flags) == errno.EACCES, oct(flags)
            assert truncates_unseen(flags)
            assert asked(NEW, flags) == ALLOW
            # A broker opens the file itself, and tells what is missed.
            assert asked(OLD._replace(listened=False, brokered=True), flags) == ALLOW
            assert asked(OLD._replace(listened=False), flags) == errno.EACCES
    for flags in (
        *(os.O_RDONLY, os.O_RDWR, os.O_ACCMODE, os.O_CREAT | os.O_WRONLY),
        *(os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC | os.O_CREAT, os.O_PATH | os.O_TRUNC),
    ):
        assert asked(OLD, flags) == ALLOW, oct(flags)
        assert not truncates_unseen(flags)


def test_nothing_is_truncated_by_its_path(machine: str) -> None:
    assert decide(machine, OLD, "truncate", 1, 0) == errno.EACCES
    assert decide(machine, OLD._replace(listened=False), "truncate", 1, 0) == errno.EACCES
    assert decide(machine, NEW, "truncate", 1, 0) == ALLOW


def test_the_substitutes_change_nothing_else(machine: str) -> None:
    checked = {"mmap", "mprotect", "pkey_mprotect", "truncate", "open", "openat"}
    for name in ARCHITECTURES[machine].calls.keys() - checked:
        for arguments in ((0,) * 6, (1,) * 6, (7, 7, 4, 7, 7, 7)):
            old, new = (decide(machine, each, name, *arguments) for each in (OLD, NEW))
            assert old == new, name
    assert decide(machine, OLD, "execve", 1, 2, 3) == NOTIFY
