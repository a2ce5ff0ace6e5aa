"""Limits of one key: quotas, request rates, and slots."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.limits import (
    LIMIT_FIELDS,
    FairSlots,
    KeyLimits,
    KeyUsage,
    TokenBucket,
    check_quota,
)
from orchestrator.settings.settings import Settings

AMOUNTS = st.integers(0, 100)
USAGES = st.builds(KeyUsage, AMOUNTS, st.floats(0, 100), AMOUNTS, AMOUNTS, AMOUNTS)
LIMITS = st.builds(
    KeyLimits,
    st.none() | AMOUNTS,
    st.none() | st.floats(0, 100),
    st.none() | AMOUNTS,
    st.none() | AMOUNTS,
    st.none() | AMOUNTS,
)


def refused(limits: KeyLimits, used: KeyUsage, more: KeyUsage) -> RateLimitedError | None:
    try:
        check_quota(limits, used, more)
    except RateLimitedError as error:
        return error
    return None


def test_own_limits_go_before_the_defaults() -> None:
    own, defaults = KeyLimits(max_sessions=0), KeyLimits(max_sessions=5, max_cpus=2.0)
    assert own.over(defaults) == KeyLimits(max_sessions=0, max_cpus=2.0)
    assert KeyLimits().over(defaults) == defaults


@given(LIMITS, USAGES, USAGES)
def test_a_quota_is_never_exceeded_by_what_is_admitted(
    limits: KeyLimits, used: KeyUsage, more: KeyUsage
) -> None:
    pairs = [
        (limits.max_sessions, used.sessions, more.sessions),
        (limits.max_cpus, used.cpus, more.cpus),
        (limits.max_memory_bytes, used.memory_bytes, more.memory_bytes),
        (limits.max_workspaces, used.workspaces, more.workspaces),
        (limits.max_workspace_bytes, used.workspace_bytes, more.workspace_bytes),
    ]
    over = [most is not None and m > 0 and u + m > most + 1e-6 for most, u, m in pairs]
    refusal = refused(limits, used, more)
    if refusal is None:
        assert not any(over)
    else:
        assert refusal.fields["limit"] in LIMIT_FIELDS
        assert refusal.fields["retry_after"] > 0
        assert any(most is not None and u + m > most for most, u, m in pairs)


def test_quotas_take_parts_of_cores_as_they_are_meant() -> None:
    limits = KeyLimits(max_cpus=0.3)
    check_quota(limits, KeyUsage(cpus=0.1 + 0.1), KeyUsage(cpus=0.1))
    with pytest.raises(RateLimitedError, match=r"max_cpus of this key is 0\.3"):
        check_quota(limits, KeyUsage(cpus=0.3), KeyUsage(cpus=0.05))


def test_a_refusal_says_which_workspace_can_be_purged() -> None:
    limits = KeyLimits(max_workspaces=1, max_workspace_bytes=10**12)
    with pytest.raises(RateLimitedError, match="`paddock sessions close old-1 --purge`") as caught:
        check_quota(limits, KeyUsage(workspaces=1), KeyUsage(workspaces=1), "old-1")
    assert caught.value.fields["limit"] == "max_workspaces"
    with pytest.raises(RateLimitedError, match=r"is 1000000000000, .*close a session and purge"):
        check_quota(limits, KeyUsage(), KeyUsage(workspace_bytes=10**12 + 1))


def test_what_shrinks_is_admitted_even_over_the_limit() -> None:
    limits = KeyLimits(max_sessions=1, max_cpus=1.0, max_memory_bytes=1)
    check_quota(limits, KeyUsage(5, 9.0, 9), KeyUsage(0, -1.0, -1))


@given(
    st.floats(0.1, 1000),
    st.floats(1, 100),
    st.lists(st.floats(0, 10), max_size=60),
)
def test_no_more_requests_than_rate_and_burst(
    rate: float, burst: float, pauses: list[float]
) -> None:
    bucket, now, taken = TokenBucket(burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        taken += bucket.take(now, rate, burst) == 0.0
    assert taken <= burst + rate * now + 1e-6


@given(st.floats(0.1, 1000), st.floats(1, 100), st.integers(1, 300))
def test_after_the_time_told_there_is_a_token(rate: float, burst: float, requests: int) -> None:
    bucket = TokenBucket(burst, 0.0)
    wait = max(bucket.take(0.0, rate, burst) for _ in range(requests))
    assume(wait > 0)
    assert wait <= 1 / rate
    assert bucket.take(wait * (1 + 1e-9) + 1e-9, rate, burst) == 0.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1.0, 10.0)
    assert bucket.take(10.0, 1.0, 1.0) == 0.0
    assert bucket.take(5.0, 1.0, 1.0) == 1.0


@given(st.lists(st.sampled_from("abcde"), max_size=60), st.integers(1, 6), st.integers(1, 6))
def test_slots_are_bounded_and_nobody_waits_without_need(
    asked: list[str], most: int, per_key: int
) -> None:
    slots: FairSlots[int] = FairSlots(most, per_key, most_waiting=100)
    working: Counter[str] = Counter()
    served: dict[str, list[int]] = {key: [] for key in asked}
    for number, key in enumerate(asked):
        slots.ask(key, number)
    while slots.waiting or working.total():
        while (started := slots.next()) is not None:
            working[started[0]] += 1
            served[started[0]].append(started[1])
        assert working.total() == slots.working <= most
        assert all(count <= per_key for count in working.values())
        waiting = {k for k in served if len(served[k]) < asked.count(k)}
        assert working.total() == most or all(working[k] == per_key for k in waiting)
        key = next(iter(+working))
        working[key] -= 1
        slots.finish(key)
    # Each key's requests are served in the order in which they came.
    assert all(tickets == sorted(tickets) for tickets in served.values())
    assert sum(map(len, served.values())) == len(asked)


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 20), min_size=1))
def test_keys_are_served_round_robin_however_much_they_ask(asked: dict[str, int]) -> None:
    slots: FairSlots[int] = FairSlots(1, 1, most_waiting=100)
    for key, count in asked.items():
        for number in range(count):
            slots.ask(key, number)
    left = Counter(asked)
    while left.total():
        this_round = set(+left)
        for _ in range(len(this_round)):
            started = slots.next()
            assert started is not None
            this_round.remove(started[0])
            left[started[0]] -= 1
            slots.finish(started[0])
        assert not this_round


def test_who_comes_late_is_next_after_a_flood() -> None:
    slots: FairSlots[str] = FairSlots(2, 2, most_waiting=100)
    for number in range(50):
        slots.ask("greedy", f"greedy {number}")
    assert slots.next() == ("greedy", "greedy 0")
    assert slots.next() == ("greedy", "greedy 1")
    slots.ask("other", "other")
    assert slots.next() is None
    slots.finish("greedy")
    assert slots.next() == ("greedy", "greedy 2")
    slots.finish("greedy")
    assert slots.next() == ("other", "other")


def test_too_many_that_wait_are_refused_by_key() -> None:
    slots: FairSlots[int] = FairSlots(1, 1, most_waiting=2)
    slots.ask("a", 1)
    slots.ask("a", 2)
    with pytest.raises(RateLimitedError) as caught:
        slots.ask("a", 3)
    assert caught.value.fields["limit"] == "waiting_creations"
    slots.ask("b", 1)


def test_tickets_can_be_withdrawn() -> None:
    slots: FairSlots[int] = FairSlots(1, 1, most_waiting=2)
    slots.ask("a", 1)
    slots.ask("a", 2)
    slots.withdraw("a", 1)
    slots.withdraw("a", 9)
    slots.withdraw("b", 1)
    assert slots.next() == ("a", 2)
    assert slots.waiting == 0


def test_kept_workspaces_are_bounded_by_default(tmp_path: Path) -> None:
    defaults = Settings(state_dir=tmp_path).key_limits
    kept = KeyUsage(workspaces=256)
    with pytest.raises(RateLimitedError, match="paddock sessions close old --purge") as caught:
        check_quota(defaults, kept, KeyUsage(workspaces=1), "old")
    assert caught.value.fields["limit"] == "max_workspaces"
    full = KeyUsage(workspaces=1, workspace_bytes=512 * 2**30)
    with pytest.raises(RateLimitedError, match="max_workspace_bytes"):
        check_quota(defaults, full, KeyUsage(workspaces=1, workspace_bytes=1))
