"""Which signals a filter reports where the kernel has no scopes, and what such a call asks for."""

import errno
import fcntl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.enforce.filters import read_filter, seccomp, signals
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.filters.signals import InvalidCallError, Wanted, checked_info, wanted
from tests.support.filters import ALLOW, NOTIFY, decision

MARK = (0xCAFEF00D, 0x00C0FFEE)
MACHINES = sorted(ARCHITECTURES)
CALLS = sorted(set(signals.names("x86_64").values()) - {"fcntl"})
F_SETOWN_EX, FIOSETOWN, SIOCSPGRP = 15, 0x8901, 0x8902
WANTED = seccomp.Filter(
    unnamed_memory=True, interfaces=True, ptrace=False, cookie=None, signals=MARK
)


def commands(machine: str) -> list[bytes]:
    """The filters that commands have: without a broker and with one."""
    return [
        seccomp.program(machine, WANTED),
        read_filter.program(machine, (1, 2), with_signals=True),
    ]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", CALLS)
def test_signals_to_others_are_reported(machine: str, call: str) -> None:
    for code in commands(machine):
        for target in (1, 42, 2**32 - 1, 2**32 - 42):  # -1 and -42 among them
            assert decision(code, machine, call, target, 9) == NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_the_own_group_is_not_reported(machine: str) -> None:
    for code in commands(machine):
        assert decision(code, machine, "kill", 0, 9) == ALLOW
        assert decision(code, machine, "kill", 1 << 32, 9) == ALLOW  # the kernel sees an int


@pytest.mark.parametrize("machine", MACHINES)
def test_only_the_guard_sends_unreported(machine: str) -> None:
    own, watched = commands(machine)
    low, high = MARK
    for arguments in ((9, 0), (-9 % 2**64, 15)):
        assert decision(own, machine, "kill", *arguments, low, high) == ALLOW
        assert decision(own, machine, "kill", *arguments, low, high ^ 1) == NOTIFY
        assert decision(own, machine, "kill", *arguments, high, low) == NOTIFY
        assert decision(watched, machine, "kill", *arguments, low, high) == NOTIFY
    assert decision(own, machine, "pidfd_send_signal", 3, 9, 0, 0, low, high) == ALLOW
    assert decision(own, machine, "pidfd_send_signal", 3, 9, low, high) == NOTIFY
    for call in ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        assert decision(own, machine, call, *[low, high] * 3) == NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_owners_of_descriptors(machine: str) -> None:
    for code in commands(machine):
        assert decision(code, machine, "fcntl", 3, fcntl.F_SETOWN, 42) == NOTIFY
        assert decision(code, machine, "fcntl", 3, fcntl.F_SETOWN, 2**64 - 42) == NOTIFY
        assert decision(code, machine, "fcntl", 3, fcntl.F_SETOWN, 0) == ALLOW
        assert decision(code, machine, "fcntl", 3, F_SETOWN_EX, 0) == errno.EPERM
        for harmless in (fcntl.F_GETOWN, fcntl.F_SETFL, fcntl.F_DUPFD, fcntl.F_SETLKW):
            assert decision(code, machine, "fcntl", 3, harmless, 42) == ALLOW
    for listened in (True, False):
        code = seccomp.program(machine, WANTED._replace(listened=listened))
        for number in (FIOSETOWN, SIOCSPGRP):
            assert decision(code, machine, "ioctl", 3, number) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_with_scopes_and_under_a_broker_the_first_filter_reports_none(machine: str) -> None:
    for other in (WANTED._replace(signals=None), WANTED._replace(listened=False)):
        code = seccomp.program(machine, other)
        assert [call for call in CALLS if decision(code, machine, call, 42, 9) != ALLOW] == []


ME, THREAD, OTHER = 100, 101, 200


def asked(call: str, *arguments: int) -> Wanted:
    words = [value % 2**64 for value in arguments]
    return wanted(call, (*words, *[0] * (6 - len(words))))


def test_what_goes_on_to_the_kernel() -> None:
    def may(call: str, *arguments: int) -> bool:
        return signals.may_go_on(asked(call, *arguments), ME, THREAD)

    assert all(may("kill", pid, 9) for pid in (ME, THREAD))
    assert all(may("tkill", pid, 9) for pid in (ME, THREAD))
    assert may("tgkill", ME, OTHER, 9)  # the kernel looks whether it is one of its threads
    assert may("rt_sigqueueinfo", ME, 9, 4096)
    assert may("rt_tgsigqueueinfo", ME, THREAD, 9, 4096)
    assert may("fcntl", 3, fcntl.F_SETOWN, ME)
    assert not may("fcntl", 3, fcntl.F_SETOWN, THREAD)
    assert not may("fcntl", 3, fcntl.F_SETOWN, -ME)
    for pid in (OTHER, -OTHER, -ME, -1, 1):
        assert not may("kill", pid, 9)
        assert not may("rt_sigqueueinfo", pid, 9, 4096)
    assert not may("tkill", OTHER, 9)
    assert not may("tgkill", OTHER, OTHER, 9)
    # Another thread could exchange the descriptor.
    assert not may("pidfd_send_signal", ME, 9, 0, 0)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("tkill", (0, 9)),
        ("tkill", (-5, 9)),
        ("tgkill", (0, 5, 9)),
        ("tgkill", (5, 0, 9)),
        ("rt_tgsigqueueinfo", (-5, 5, 9)),
        ("pidfd_send_signal", (3, 9, 0, 1)),
    ],
)
def test_what_the_kernel_would_refuse(call: str, arguments: tuple[int, ...]) -> None:
    with pytest.raises(InvalidCallError):
        asked(call, *arguments)


@given(st.sampled_from(CALLS), st.tuples(*[st.integers(0, 2**64 - 1)] * 6))
def test_any_arguments(call: str, arguments: tuple[int, ...]) -> None:
    try:
        found = wanted(call, arguments)
    except InvalidCallError:
        return
    for value in (found.target, found.number, found.thread, found.descriptor):
        assert value is None or -(2**31) <= value < 2**31


def test_siginfo_that_a_process_may_send() -> None:
    info = struct.pack("<iii", 10, 0, -1).ljust(128, b"x")
    assert checked_info(asked("rt_sigqueueinfo", OTHER, 12, 1), info)[:12] == struct.pack(
        "<iii", 12, 0, -1
    )
    assert checked_info(asked("pidfd_send_signal", 3, 10, 1, 0), info) == info
    with pytest.raises(InvalidCallError):
        checked_info(asked("pidfd_send_signal", 3, 12, 1, 0), info)
    for code in (0, 1, 0x80, -6):
        with pytest.raises(PermissionError):
            checked_info(asked("rt_sigqueueinfo", OTHER, 10, 1), struct.pack("<iii", 10, 0, code))
