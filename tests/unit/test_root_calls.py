"""The filter's decisions where commands are root inside."""

import errno

import pytest

from sandbox_agent.enforce.filters import seccomp
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.filters.seccomp import Filter
from sandbox_agent.enforce.root_inside.namespace import NEW_USER
from tests.support.filters import ALLOW, decision

MARK = (0x12345678, 0x9ABCDEF0)
UNCHANGED = 0xFFFFFFFF
USUAL = Filter(unnamed_memory=True, interfaces=True, ptrace=False, cookie=None, writable_code=True)


@pytest.fixture(params=ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize(
    ("arguments", "passes"),
    [
        ((5, NEW_USER, *MARK), True),
        ((5, NEW_USER, 0, 0), False),
        ((5, NEW_USER, MARK[0], 0), False),
        ((5, NEW_USER, MARK[1], MARK[0]), False),
        ((5, 0, *MARK), False),
        ((5, NEW_USER | 0x20000, *MARK), False),
    ],
)
def test_only_the_guard_enters_a_namespace(
    machine: str, arguments: tuple[int, ...], passes: bool
) -> None:
    expected = ALLOW if passes else errno.EPERM
    code = seccomp.program(machine, USUAL._replace(entry=MARK))
    assert decision(code, machine, "setns", *arguments) == expected
    usual = seccomp.program(machine, USUAL)
    assert decision(usual, machine, "setns", *arguments) == errno.EPERM


@pytest.mark.parametrize(
    ("owner", "group", "answered"),
    [
        (0, 0, False),
        (UNCHANGED, UNCHANGED, False),
        (0, UNCHANGED, False),
        (UNCHANGED, 0, False),
        (33, 0, True),
        (0, 33, True),
        (33, 33, True),
        (UNCHANGED, 42, True),
        (65534, UNCHANGED, True),
    ],
)
def test_other_owners_are_answered_with_success(
    machine: str, owner: int, group: int, answered: bool
) -> None:
    code = seccomp.program(machine, USUAL._replace(entry=MARK))
    usual = seccomp.program(machine, USUAL)
    for name, before in (("chown", 1), ("fchown", 1), ("lchown", 1), ("fchownat", 2)):
        if name in ARCHITECTURES[machine].calls:
            arguments = (*[7] * before, owner, group)
            assert decision(code, machine, name, *arguments) == (0 if answered else ALLOW)
            assert decision(usual, machine, name, *arguments) == ALLOW


def test_groups_are_answered_with_success(machine: str) -> None:
    code = seccomp.program(machine, USUAL._replace(entry=MARK))
    assert decision(code, machine, "setgroups", 1, 0) == 0
    assert decision(seccomp.program(machine, USUAL), machine, "setgroups", 1, 0) == ALLOW


def test_every_further_namespace_is_refused(machine: str) -> None:
    code = seccomp.program(machine, USUAL._replace(entry=MARK))
    assert decision(code, machine, "unshare", NEW_USER) == errno.EPERM
    assert decision(code, machine, "clone", NEW_USER | 17) == errno.EPERM
    assert decision(code, machine, "clone3", 0, 88) == errno.ENOSYS
    for name in ("mount", "chroot", "pivot_root", "open_tree", "fsopen", "bpf", "keyctl"):
        assert decision(code, machine, name) == errno.EPERM
