"""Requirements of levels on a host, and the messages if it lacks something."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.host.engine.base import Rates
from orchestrator.host.node.host import facts_of
from orchestrator.host.node.kernel import KernelFacts
from orchestrator.host.node.requirements import Facts, Requirements, UnmetError, check, unmet
from orchestrator.rules.policy.levels import load_levels
from sandbox_agent.decide.facilities import UNKNOWN_KERNEL, Kernel
from tests.support.kernels import FULL_KERNEL, KERNEL_5_15, KERNEL_6_1

ALL = Facts(FULL_KERNEL, mounts=True, quota=True)
NOTHING = Facts(UNKNOWN_KERNEL, mounts=False, quota=False)


def lacking(**facilities: Any) -> Facts:
    return replace(ALL, kernel=FULL_KERNEL._replace(**facilities))


@pytest.mark.parametrize(
    ("level", "facts", "reasons"),
    [
        ("low", ALL, []),
        ("high", ALL, []),
        ("low", replace(ALL, quota=False), []),
        ("low", replace(ALL, kernel=KERNEL_5_15), []),
        ("medium", replace(ALL, kernel=KERNEL_5_15), []),
        ("high", replace(ALL, kernel=KERNEL_5_15), []),
        ("high", lacking(landlock=0), ["needs Landlock version 1, but found none"]),
        ("medium", lacking(landlock=0), ["needs Landlock version 1, but found none"]),
        ("low", lacking(notification=False), ["needs seccomp filters with notification, which "]),
        ("high", replace(ALL, mounts=False), ["needs workspaces mounted with flags, which can't"]),
        ("low", NOTHING, ["needs Landlock", "needs seccomp", "needs workspaces mounted"]),
    ],
)
def test_packaged_levels(level: str, facts: Facts, reasons: list[str]) -> None:
    found = unmet(load_levels()[level].requires, facts)
    assert len(found) == len(reasons)
    assert all(each.startswith(reason) for each, reason in zip(found, reasons, strict=True))


def test_a_quota_that_is_demanded() -> None:
    needed = Requirements(landlock=0, seccomp=False, mounts=False, quota=True)
    assert unmet(needed, ALL) == []
    assert len(unmet(needed, replace(ALL, quota=False))) == 1


def test_rates_of_the_disk_need_a_kernel_that_keeps_them() -> None:
    needed = load_levels()["high"].requires
    for rates in (Rates(disk_read=1), Rates(disk_write=1)):
        (reason,) = unmet(needed, ALL, rates)
        assert reason.startswith("needs a rate limit for workspaces' disks")
        assert unmet(needed, replace(ALL, throttle=True), rates) == []
        assert unmet(needed, replace(ALL, throttle=True).within(FULL_KERNEL), rates) == []
    assert unmet(needed, ALL, Rates(network_send=1)) == []


def test_a_pack_needs_reads_that_nothing_disturbs() -> None:
    needed = load_levels()["low"].requires
    assert unmet(needed, ALL, packed=True) == []
    assert unmet(needed, replace(ALL, kernel=KERNEL_6_1), packed=True) == []
    (reason,) = unmet(needed, replace(ALL, kernel=KERNEL_5_15), packed=True)
    assert reason.startswith("needs a kernel of 5.19 or later for a pack")
    loose = Requirements(landlock=0, seccomp=True, mounts=True, quota=False)
    assert unmet(loose, lacking(landlock=0)) == []
    assert unmet(loose, lacking(landlock=0), packed=True) == [
        "needs Landlock for a pack, but found none"
    ]


def test_what_a_refusal_says() -> None:
    needed = Requirements(landlock=3, seccomp=True, mounts=False, quota=False)
    check("build", needed, ALL, "here")
    with pytest.raises(UnmetError) as caught:
        check("build", needed, NOTHING, "here")
    assert caught.value.code == "engine_unavailable"
    assert caught.value.detail == (
        "level build can't be enforced here: needs Landlock version 3, but found none; "
        "needs seccomp filters with notification, which are missing"
    )


KERNELS = st.builds(Kernel, st.integers(0, 9), st.booleans(), st.booleans(), st.booleans())
NEEDS = st.builds(Requirements, st.integers(0, 9), st.booleans(), st.booleans(), st.booleans())
HAVE = st.builds(Facts, KERNELS, st.booleans(), st.booleans())


@given(NEEDS, HAVE, KERNELS)
def test_a_sandbox_never_has_more_than_its_host(
    needed: Requirements, host: Facts, kernel: Kernel
) -> None:
    inside = host.within(kernel)
    if unmet(needed, host):
        assert unmet(needed, inside)
    assert unmet(needed, host.within(FULL_KERNEL._replace(landlock=9))) == unmet(needed, host)


def test_facts_of_a_kernel() -> None:
    kernel = KernelFacts("6.1", KERNEL_6_1, landlock_error=0, seccomp_error=0)
    assert facts_of(kernel, mounts=True, quota=False) == Facts(KERNEL_6_1, mounts=True, quota=False)
