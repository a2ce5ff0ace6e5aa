"""Heavy users of the event loop wait, light users do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.fair_share import FairShare, Pace


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def work(clock: Clock, share: FairShare, members: int, seconds: float, step: float) -> list[float]:
    """The time that each member gets if all of them use as much as they may, in steps."""
    used, free_at = [0.0] * members, [clock.now] * members
    end = clock.now + seconds
    while clock.now < end:
        for member in range(members):
            if free_at[member] <= clock.now:
                used[member] += step
                free_at[member] = clock.now + share.spend(member, step)
        clock.now += step
    return used


def test_who_uses_little_does_not_wait() -> None:
    clock = Clock()
    share = FairShare(clock)
    for _ in range(1000):
        assert share.spend("a", 0.0004) == 0
        clock.now += 0.001


def test_who_uses_all_gets_half_of_the_time() -> None:
    clock = Clock()
    (used,) = work(clock, FairShare(clock), 1, 10.0, 0.001)
    assert used == pytest.approx(5.0, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 5, 20])
def test_they_share_it_evenly(members: int) -> None:
    clock = Clock()
    used = work(clock, FairShare(clock), members, 40.0, 0.001)
    assert max(used) <= min(used) * 1.5 + 0.1
    assert sum(used) <= 0.5 * 40 * 1.1 + members * 0.1


def test_a_modest_neighbour_of_greedy_ones_does_not_wait() -> None:
    clock = Clock()
    share = FairShare(clock)
    free_at = dict.fromkeys(range(10), 0.0)
    for _ in range(10_000):
        for member in free_at:
            if free_at[member] <= clock.now:
                free_at[member] = clock.now + share.spend(member, 0.001)
        assert share.spend("modest", 0.00002) == 0
        clock.now += 0.001


def test_what_is_forgotten_begins_anew() -> None:
    clock = Clock()
    share = FairShare(clock)
    assert share.spend("a", 10.0) > 0
    share.forget("a")
    assert share.spend("a", 0.001) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 0.1), st.floats(0, 1)), max_size=50))
def test_a_wait_is_never_without_an_end(steps: list[tuple[int, float, float]]) -> None:
    clock = Clock()
    share = FairShare(clock)
    used = 0.0
    for member, seconds, pause in steps:
        used += seconds
        assert 0 <= share.spend(member, seconds) <= used * 2 * 4
        clock.now += pause


def test_a_pace_allows_some_at_once_and_then_one_in_a_while() -> None:
    clock = Clock()
    pace = Pace(0.5, 3, clock)
    happened = []
    for _ in range(5):
        clock.now += pace.wait()
        happened.append(clock.now - 100)
        pace.count()
    assert happened == [0, 0, 0, 0.5, 1.0]
    clock.now += 60
    assert pace.wait() == 0
    pace.count(6)
    assert pace.wait() == 2.0
