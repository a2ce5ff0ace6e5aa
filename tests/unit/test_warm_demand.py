"""What should wait: the latest demand, within what is left by the configured minimum."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.policy.levels import effective_limits, load_levels
from orchestrator.sandboxes.shapes import Shape, can_wait, usual_limits
from orchestrator.sandboxes.warm_demand import REMEMBERED_SECONDS, WarmDemand

LEVELS = load_levels()
LOW, HIGH = (
    Shape.of("i", "sha256:1", LEVELS[name], usual_limits(LEVELS[name])) for name in ("low", "high")
)


def test_what_was_asked_for_lately_waits() -> None:
    demand = WarmDemand(3)
    assert demand.wanted(0, {}) == {}
    assert demand.next_change(0) is None
    for at, shape in enumerate((LOW, LOW, HIGH)):
        demand.asked(shape, at)
    assert demand.wanted(2, {}) == {LOW: 2, HIGH: 1}
    demand.asked(HIGH, 3)  # only the latest three count
    assert demand.wanted(3, {}) == {LOW: 1, HIGH: 2}
    assert demand.next_change(3) == REMEMBERED_SECONDS - 2
    assert demand.wanted(REMEMBERED_SECONDS + 1, {}) == {HIGH: 2}
    assert demand.wanted(REMEMBERED_SECONDS + 3, {}) == {}


def test_the_minimum_waits_first() -> None:
    demand = WarmDemand(3)
    assert demand.wanted(0, {LOW: 2}) == {LOW: 2}
    demand.asked(LOW, 0)
    assert demand.wanted(0, {LOW: 2}) == {LOW: 2}  # enough of them wait
    demand.asked(HIGH, 0)
    demand.asked(HIGH, 0)
    assert demand.wanted(0, {LOW: 2}) == {LOW: 2, HIGH: 1}


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
        demand.asked(shape, now)
    minimum = {LOW: min(least, most)}
    wanted = demand.wanted(now, minimum)
    assert wanted.total() <= most
    assert wanted >= Counter(minimum)


def test_a_shape_is_what_is_fixed_with_the_container() -> None:
    low = LEVELS["low"]
    larger = replace(usual_limits(low), workspace_bytes=2**20)
    assert Shape.of("i", "sha256:1", low, larger) == LOW
    fewer = effective_limits(low, {"pids": 32})
    for other in (
        Shape.of("i", "sha256:2", low, usual_limits(low)),
        Shape.of("i", "sha256:1", replace(low, sha256="0"), usual_limits(low)),
        Shape.of("i", "sha256:1", low, fewer),
    ):
        assert other != LOW
    assert LOW.session_limits() == usual_limits(low)


def test_demand_follows_the_image_and_the_level() -> None:
    low = LEVELS["low"]
    newer = replace(low, sha256="0", limits=replace(low.limits, pids=32))
    assert LOW.at("sha256:1", low) == LOW
    changed = LOW.at("sha256:2", newer)
    assert changed == Shape.of("i", "sha256:2", newer, usual_limits(newer))
    # A session's own limits may not fit the new level.
    own = Shape.of("i", "sha256:1", low, effective_limits(low, {"pids": 32}))
    assert own.at("sha256:2", low) == replace(own, image_id="sha256:2")
    assert own.at("sha256:1", newer) is None
    demand = WarmDemand(3)
    demand.asked(LOW, 0)
    demand.asked(own, 0)
    demand.renew(lambda shape: shape.at("sha256:2", newer))
    assert demand.wanted(0, {}) == {changed: 1}


def test_a_workspace_s_device_and_the_operator_s_mounts_are_not_known_ahead() -> None:
    low = LEVELS["low"]
    assert can_wait(low)
    assert not can_wait(replace(low, rates=replace(low.rates, disk_read=1)))
    assert can_wait(replace(low, rates=replace(low.rates, network_send=1)))
    assert not can_wait(replace(low, mounts=("data",)))
    assert LOW.at("sha256:1", replace(low, sha256="0", mounts=("data",))) is None
