"""Budgets: what is counted, what is left, and when they are exceeded."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.state.budget import OF_COMMANDS, Budget, Exceeded, inside, limits_of, outside
from paddock.contract.words import MOST_BUDGET, Kind

START = datetime(2026, 3, 4, 9, 30, tzinfo=UTC)
CONSUMED = [kind for kind in Kind if kind is not Kind.TIME]
AMOUNTS = st.integers(0, 10**12)


def later(microseconds: int) -> datetime:
    return START + timedelta(microseconds=microseconds)


@given(st.sampled_from(CONSUMED), st.integers(1, 50))
def test_exactly_n_uses_complete_and_the_next_is_refused(kind: Kind, limit: int) -> None:
    budget = Budget(START, {kind: limit})
    for _ in range(limit):
        assert budget.exhausted(START) is None
        budget.consume(kind, 1)
    assert budget.exhausted(START) is kind
    assert budget.remaining(kind, START) == 0


@given(st.sampled_from(CONSUMED), AMOUNTS, st.lists(AMOUNTS, max_size=8))
def test_what_is_left_is_the_limit_less_what_is_used(
    kind: Kind, limit: int, uses: list[int]
) -> None:
    budget = Budget(START, {kind: limit})
    for amount in uses:
        budget.consume(kind, amount)
    assert budget.consumed(kind, START) == sum(uses)
    assert budget.remaining(kind, START) == max(0, limit - sum(uses))
    assert (budget.exhausted(START) is kind) == (sum(uses) >= limit)


@given(st.dictionaries(st.sampled_from(CONSUMED), AMOUNTS))
def test_without_a_limit_everything_is_counted_and_nothing_refused(used: dict[Kind, int]) -> None:
    budget = Budget(START)
    for kind, amount in used.items():
        budget.consume(kind, amount)
    assert budget.exhausted(later(10**15)) is None
    assert budget.deadline is None
    assert all(budget.remaining(kind, START) is None for kind in Kind)
    assert {kind: budget.consumed(kind, START) for kind in used} == used


@pytest.mark.parametrize("kind", CONSUMED)
def test_nobody_gives_a_budget_more_by_using_less_than_nothing(kind: Kind) -> None:
    budget = Budget(START, {kind: 5})
    for change in (budget.consume, budget.reach, budget.give_back):
        with pytest.raises(ValueError, match=f"Cannot consume negative {kind}"):
            change(kind, -1)
    assert budget.consumed(kind, START) == 0


@given(st.sampled_from(CONSUMED), st.lists(AMOUNTS, min_size=1))
def test_totals_never_fall(kind: Kind, totals: list[int]) -> None:
    budget = Budget(START)
    for total in totals:
        budget.reach(kind, total)
    assert budget.used(kind) == max(totals)


def test_what_did_not_happen_is_given_back() -> None:
    budget = Budget(START, {Kind.COMMANDS: 1})
    budget.consume(Kind.COMMANDS, 1)
    budget.give_back(Kind.COMMANDS, 1)
    assert budget.exhausted(START) is None
    budget.give_back(Kind.COMMANDS, 1)
    assert budget.used(Kind.COMMANDS) == 0


@given(st.integers(1, MOST_BUDGET), st.integers(0, MOST_BUDGET))
def test_time_passes_by_itself(limit: int, passed: int) -> None:
    budget = Budget(START, {Kind.TIME: limit})
    assert budget.deadline == later(limit)
    assert budget.consumed(Kind.TIME, later(passed)) == passed
    assert (budget.exhausted(later(passed)) is Kind.TIME) == (passed >= limit)
    for use in (budget.consume, budget.give_back, budget.reach):
        with pytest.raises(ValueError, match="time passes by itself"):
            use(Kind.TIME, 1)


def test_a_clock_that_was_set_back_gives_no_time() -> None:
    budget = Budget(START, {Kind.TIME: 5})
    assert budget.remaining(Kind.TIME, START - timedelta(days=1)) == 5


def test_commands_do_not_find_iterations_exhausted() -> None:
    """The last turn may still run commands; only the next turn is refused."""
    budget = Budget(START, {Kind.ITERATIONS: 1})
    budget.consume(Kind.ITERATIONS, 1)
    assert budget.exhausted(START, OF_COMMANDS) is None
    assert budget.exhausted(START) is Kind.ITERATIONS


def test_the_first_exhaustion_stays() -> None:
    budget = Budget(START, {Kind.COMMANDS: 2, Kind.TIME: 1_500_000})
    budget.consume(Kind.COMMANDS, 2)
    first = budget.exceed(Kind.COMMANDS, START)
    second = budget.exceed(Kind.TIME, later(2_000_000))
    assert budget.exceeded == first == Exceeded(Kind.COMMANDS, 2, 2)
    error = second.error()
    assert error.detail == "Budget exceeded: time (2/1.5)"
    assert error.fields == {"kind": "time", "limit": 1.5, "consumed": 2}
    assert second.recorded() == {
        "kind": "time",
        "limit": 1_500_000,
        "consumed": 2_000_000,
        "unit": "microseconds",
    }
    with pytest.raises(KeyError):
        budget.exceed(Kind.COST, START)


@given(
    st.dictionaries(st.sampled_from(list(Kind)), st.integers(1, MOST_BUDGET)),
    st.dictionaries(st.sampled_from(CONSUMED), AMOUNTS),
    st.booleans(),
)
def test_a_stored_budget_comes_back_as_it_was(
    limits: dict[Kind, int], used: dict[Kind, int], over: bool
) -> None:
    budget = Budget(START, limits)
    for kind, amount in used.items():
        budget.consume(kind, amount)
    if over and limits:
        budget.exceed(next(iter(limits)), START)
    restored = Budget.restored(START, json.loads(json.dumps(budget.stored())))
    if Kind.AUDIT_BYTES in used:  # counted with the ledger
        restored.reach(Kind.AUDIT_BYTES, used[Kind.AUDIT_BYTES])
    assert restored == budget


def test_sessions_from_before_there_were_budgets_have_none() -> None:
    assert Budget.restored(START, {}) == Budget(START)


def test_the_view_has_every_kind() -> None:
    budget = Budget(START, limits_of({"cpu_seconds": 2.5, "commands": 3}))
    budget.consume(Kind.CPU_SECONDS, 500_000)
    budget.consume(Kind.COMMANDS, 4)
    view = budget.view(later(1_000_000))
    assert all(list(part) == list(Kind) for part in view)
    assert view.limits[Kind.CPU_SECONDS] == 2.5
    assert view.remaining[Kind.CPU_SECONDS] == 2
    assert view.remaining[Kind.COMMANDS] == 0
    assert view.consumed[Kind.COMMANDS] == 4
    assert view.consumed[Kind.TIME] == 1
    assert view.remaining[Kind.TOKENS] is None
    json.dumps(view)


@given(st.sampled_from(list(Kind)), st.integers(1, MOST_BUDGET))
def test_amounts_survive_the_way_out_and_in(kind: Kind, units: int) -> None:
    assert inside(kind, outside(kind, units)) == units


@given(st.floats(0, 1e9, exclude_min=True))
def test_no_limit_that_was_asked_for_becomes_nothing(amount: float) -> None:
    assert 1 <= limits_of({"cost": amount})[Kind.COST] <= MOST_BUDGET


def test_a_kind_that_is_none() -> None:
    with pytest.raises(ValueError, match="sleep"):
        limits_of({"sleep": 1})
