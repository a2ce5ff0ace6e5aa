"""Kernels and what is in force on them: the table of facilities and their substitutes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.facilities import FACILITIES, WITHOUT, Kernel, in_force, without
from sandbox_agent.enforce.kernel import probe
from tests.support.kernels import FULL_KERNEL, KERNEL_5_15, KERNEL_6_1, KERNEL_6_8

NAMES = [each.name for each in FACILITIES]
KERNELS = st.builds(Kernel, st.integers(0, 9), st.booleans(), st.booleans(), st.booleans())


def missing(kernel: Kernel) -> list[str]:
    return [name for name in NAMES if not kernel.has(name)]


def test_what_kernels_of_systems_lack() -> None:
    assert missing(FULL_KERNEL) == []
    assert missing(KERNEL_6_8) == ["scopes"]
    assert missing(KERNEL_6_1) == ["truncation", "mdwe", "scopes"]
    assert missing(KERNEL_5_15) == ["moves", "undisturbed", "truncation", "mdwe", "scopes"]


@pytest.mark.parametrize("name", NAMES)
def test_each_facility_can_be_taken_away(name: str) -> None:
    kernel = without(FULL_KERNEL, [name])
    assert not kernel.has(name)
    (found,) = [each for each in in_force(kernel) if each.facility.name == name]
    assert not found.preferred
    assert found.provided == (found.facility.substitute is not None)
    assert f"(kernel before {found.facility.since})" in found.detail
    assert ("are refused" in found.detail) == (not found.provided)


@given(KERNELS, st.lists(st.sampled_from(NAMES)), KERNELS)
def test_nothing_is_ever_added(kernel: Kernel, names: list[str], other: Kernel) -> None:
    for less in (without(kernel, names), kernel.within(other)):
        assert set(missing(kernel)) <= set(missing(less))
    assert set(names) <= set(missing(without(kernel, names)))
    assert set(missing(kernel.within(other))) == {*missing(kernel), *missing(other)}


def test_a_variable_takes_facilities_away_for_tests() -> None:
    assert probe({}) == probe({WITHOUT: ""})
    assert probe({WITHOUT: "mdwe,truncation"}) == without(probe({}), ["mdwe", "truncation"])
    for names in ("landlock", "nothing", "_replace"):
        with pytest.raises(ValueError, match="is not a facility"):
            probe({WITHOUT: names})
