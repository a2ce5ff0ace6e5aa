"""The filter that reports opens for reading, for each architecture."""

import os

import pytest

from sandbox_agent.enforce.filters import read_filter
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from tests.support.filters import ALLOW, KILL, NOTIFY, decision

COOKIE = (0xDEADBEEF, 0x01234567)
MACHINES = sorted(ARCHITECTURES)
OPENS = [
    (machine, name, at)
    for machine in MACHINES
    for name, at in (("open", 1), ("openat", 2))
    if name in ARCHITECTURES[machine].calls
]


def decide(machine: str, call: str | int, *arguments: int, audit: int | None = None) -> object:
    return decision(read_filter.program(machine, COOKIE), machine, call, *arguments, audit=audit)


@pytest.mark.parametrize(("machine", "name", "at"), OPENS)
def test_every_open_that_can_read_is_reported(machine: str, name: str, at: int) -> None:
    def asked(flags: int) -> object:
        return decide(machine, name, *[0] * at, flags)

    for more in (0, os.O_CREAT, os.O_TRUNC, os.O_DIRECTORY, os.O_TMPFILE, os.O_NOFOLLOW):
        assert asked(os.O_RDONLY | more) == NOTIFY
        assert asked(os.O_RDWR | more) == NOTIFY
        assert asked(os.O_ACCMODE | more) == NOTIFY  # for calls that need both rights
        assert asked(os.O_WRONLY | more) == ALLOW
    assert asked(os.O_PATH) == ALLOW
    assert asked(os.O_PATH | os.O_RDWR) == ALLOW
    # The upper half of the register means nothing to the kernel.
    assert asked(os.O_RDONLY | os.O_WRONLY << 32) == NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_executions_are_reported_unless_they_have_the_cookie(machine: str) -> None:
    assert decide(machine, "execve", 1, 2, 3) == NOTIFY
    assert decide(machine, "execve", 1, 2, 3, COOKIE[0]) == NOTIFY
    assert decide(machine, "execve", 1, 2, 3, *COOKIE) == ALLOW


def test_calls_of_other_interfaces_kill() -> None:
    assert decide("x86_64", 0x40000002) == KILL
    assert decide("x86_64", "open", audit=0x40000003) == KILL
    assert decide("x86_64", 1) == ALLOW
