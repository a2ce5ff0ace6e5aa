"""What should wait: the latest demand, within what is left by the configured minimum."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.policy.levels import effective_limits, load_levels
from orchestrator.sandbox.sandboxes.warm_demand import REMEMBERED_SECONDS, WarmDemand
from orchestrator.state.shapes import (
    Shape,
    can_wait,
    cold_levels,
    has_usual_limits,
    usual_limits,
)

LEVELS = load_levels()
LOW, HIGH = (Shape.of("i", "sha256:1", LEVELS[name]) for name in ("low", "high"))


def test_what_was_asked_for_lately_waits() -> None:
    demand = WarmDemand(3)
    assert demand.wanted(0, {}, {}) == {}
    assert demand.next_change(0) is None
    for at, shape in enumerate((LOW, LOW, HIGH)):
        demand.asked(shape, "a", at)
    assert demand.wanted(2, {}, {}) == {LOW: 2, HIGH: 1}
    demand.asked(HIGH, "a", 3)  # only three wait
    assert demand.wanted(3, {}, {}) == {LOW: 1, HIGH: 2}
    assert demand.next_change(3) == REMEMBERED_SECONDS - 3
    assert demand.wanted(REMEMBERED_SECONDS + 1, {}, {}) == {HIGH: 2}
    assert demand.wanted(REMEMBERED_SECONDS + 3, {}, {}) == {}


def test_the_minimum_waits_first() -> None:
    demand = WarmDemand(3)
    assert demand.wanted(0, {LOW: 2}, {}) == {LOW: 2}
    demand.asked(LOW, "a", 0)
    assert demand.wanted(0, {LOW: 2}, {}) == {LOW: 2}  # enough of them wait
    demand.asked(HIGH, "a", 0)
    demand.asked(HIGH, "a", 0)
    assert demand.wanted(0, {LOW: 2}, {}) == {LOW: 2, HIGH: 1}


@given(
    most=st.integers(0, 5),
    asked=st.lists(st.tuples(st.sampled_from((LOW, HIGH)), st.floats(0, 1000)), max_size=20),
    least=st.integers(0, 5),
)
def test_no_more_than_the_most_wait(
    most: int, asked: list[tuple[Shape, float]], least: int
) -> None:
    demand, now = WarmDemand(most), 0.0
    for shape, pause in asked:
        now += pause
        demand.asked(shape, "a", now)
    minimum = {LOW: min(least, most)}
    wanted = demand.wanted(now, minimum, {})
    assert wanted.total() <= most
    assert wanted >= Counter(minimum)


def test_shapes_in_turn_do_not_displace_what_waits() -> None:
    demand = WarmDemand(2)
    demand.asked(LOW, "a", 0)
    demand.asked(LOW, "a", 0)
    demand.asked(HIGH, "a", 0)
    assert demand.wanted(0, {}, {LOW: 2}) == {LOW: 2}
    demand.asked(HIGH, "a", 0)
    demand.asked(HIGH, "a", 0)
    assert demand.wanted(0, {}, {LOW: 2}) == {LOW: 1, HIGH: 1}


def test_no_account_has_more_than_its_share() -> None:
    demand = WarmDemand(2)
    demand.asked(LOW, "a", 0)
    demand.asked(LOW, "a", 0)
    for _ in range(100):
        demand.asked(HIGH, "b", 0)
    assert demand.wanted(0, {}, {}) == {LOW: 1, HIGH: 1}


def test_a_shape_is_what_is_fixed_with_the_container() -> None:
    low = LEVELS["low"]
    for other in (
        Shape.of("i", "sha256:2", low),
        Shape.of("j", "sha256:1", low),
        Shape.of("i", "sha256:1", replace(low, sha256="0")),
    ):
        assert other != LOW
    assert has_usual_limits(low, replace(usual_limits(low), workspace_bytes=2**20))
    assert not has_usual_limits(low, effective_limits(low, {"pids": 32}))


def test_demand_follows_the_image_and_the_level() -> None:
    newer = Shape.of("i", "sha256:2", replace(LEVELS["low"], sha256="0"))
    demand = WarmDemand(3)
    demand.asked(LOW, "a", 0)
    demand.asked(HIGH, "a", 0)
    demand.renew(lambda shape: newer if shape == LOW else None)
    assert demand.wanted(0, {}, {}) == {newer: 1}
    demand.forget(newer)
    assert demand.wanted(0, {}, {}) == {}


def test_a_minimum_of_an_unknown_level_is_refused() -> None:
    levels = {**LEVELS, "low": replace(LEVELS["low"], mounts=("data",))}
    assert cold_levels(("low", "high"), levels) == ["low"]
    with pytest.raises(ConfigError, match="warm_least: there is no level gone"):
        cold_levels(("low", "gone"), levels)


def test_a_workspace_s_device_and_the_operator_s_mounts_are_not_known_ahead() -> None:
    low = LEVELS["low"]
    assert can_wait(low)
    assert not can_wait(replace(low, rates=replace(low.rates, disk_read=1)))
    assert can_wait(replace(low, rates=replace(low.rates, network_send=1)))
    assert not can_wait(replace(low, runtime="crun"))
    assert not can_wait(replace(low, mounts=("data",)))
