"""What a child may be at most: levels, policies and budgets, compared with its parent's."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import ConflictError, PermissionDeniedError, ValidationError
from orchestrator.rules.policy.levels import load_levels
from orchestrator.rules.policy.session_policy import (
    OPERATIONS,
    SAFE_ANALYSIS,
    SAFE_EDIT,
    SessionPolicy,
)
from orchestrator.state.budget import Budget, limits_of
from orchestrator.state.child_bounds import child_budget, child_level, child_policy, covers
from paddock.contract.words import Kind
from sandbox_agent.decide.globs import Globs

LEVELS = load_levels()
START = datetime(2026, 3, 4, tzinfo=UTC)
AMOUNTS = st.dictionaries(st.sampled_from(["commands", "tokens"]), st.integers(1, 1000))


def policy(**members: Any) -> SessionPolicy:
    """SAFE_EDIT with other members; those of its rules by their names."""
    for name in ("world_rules", "llm_rules", "execution_rules"):
        members[name] = replace(getattr(SAFE_EDIT, name), **members.get(name, {}))
    return replace(SAFE_EDIT, **members)


def test_a_child_is_at_its_parent_s_level_or_below() -> None:
    low, medium, high = (LEVELS[name] for name in ("low", "medium", "high"))
    newer = replace(medium, sha256="0" * 64)
    assert child_level(medium, None) is medium
    # The parent keeps the version that it has.
    assert child_level(medium, newer) is medium
    assert child_level(medium, low) is low
    assert [covers(medium, each) for each in (low, medium, newer, high)] == [
        *(True, True, False, False)
    ]
    other = replace(newer, name="other")
    for above in (high, other):
        with pytest.raises(PermissionDeniedError) as caught:
            child_level(medium, above)
        assert caught.value.fields == {"field": "permission_level", "rule": "parent-level"}


@pytest.mark.parametrize(
    ("outer", "inner", "wider"),
    [
        ({}, {}, None),
        ({}, {"denied_operations": frozenset(OPERATIONS)}, None),
        ({}, {"allowed_operations": SAFE_EDIT.allowed_operations | {"recall"}}, "operation recall"),
        ({"denied_operations": frozenset({"facts"})}, {}, "operation facts"),
        ({}, {"world_rules": {"read_patterns": Globs(["a"])}}, "world_rules.read_patterns"),
        ({}, {"world_rules": {"read_patterns": Globs([])}}, None),
        ({}, {"world_rules": {"write_patterns": Globs(["src/**/*"])}}, None),
        ({}, {"world_rules": {"write_patterns": Globs(["**/*"])}}, "world_rules.write_patterns"),
        (
            {},
            {"world_rules": {"write_patterns": Globs(["**/*"]), "read_only": True}},
            None,
        ),
        ({}, {"world_rules": {"proposal_mode": False}}, "world_rules.proposal_mode"),
        ({"world_rules": {"read_only": True}}, {}, "world_rules.read_only"),
        ({}, {"llm_rules": {"max_tokens_per_call": 4001}}, "llm_rules.max_tokens_per_call"),
        ({"llm_rules": {"allow_intent": False}}, {}, "llm_rules.allow_intent"),
        (
            {},
            {"execution_rules": {"allow_network_calls": True}},
            "execution_rules.allow_network_calls",
        ),
    ],
)
def test_a_policy_that_permits_more_is_refused(
    outer: dict[str, Any], inner: dict[str, Any], wider: str | None
) -> None:
    wanted = policy(**inner)
    if wider is None:
        assert child_policy(policy(**outer), wanted) is wanted
        return
    with pytest.raises(PermissionDeniedError, match=f"{wider}$") as caught:
        child_policy(policy(**outer), wanted)
    assert caught.value.fields == {"field": "policy", "rule": "parent-policy"}


def test_built_in_policies_do_not_spawn() -> None:
    assert not SAFE_ANALYSIS.permits("spawn")
    assert not SAFE_EDIT.permits("spawn")
    assert child_policy(SAFE_EDIT, SAFE_ANALYSIS) is SAFE_ANALYSIS


def budget(**limits: float) -> Budget:
    return Budget(START, limits_of({"audit_bytes": 10**9, **limits}))


def test_a_budget_is_carved_out_of_what_is_left() -> None:
    low = LEVELS["low"]
    parent = budget(commands=10, time=100, cost=0.5)
    parent.consume(Kind.COMMANDS, 4)
    later = START + timedelta(seconds=40)
    child = child_budget(parent, {"tokens": 7}, low, later)
    assert child.limits == {
        Kind.TOKENS: 7,  # of which its parent has no limit
        Kind.COMMANDS: 3,
        Kind.TIME: 60_000_000,
        Kind.COST: 250_000,
        Kind.AUDIT_BYTES: min(low.audit_bytes, 500_000_000),
    }
    assert child.started_at == later
    assert child_budget(parent, {"commands": 6}, low, later).limits[Kind.COMMANDS] == 6
    assert child_budget(parent, {}, low, later, among=2).limits[Kind.COMMANDS] == 2
    with pytest.raises(ValidationError) as caught:
        child_budget(parent, {"commands": 7}, low, later)
    assert caught.value.fields == {"field": "budget.commands"}
    assert "at most 6" in caught.value.detail
    with pytest.raises(ConflictError, match="commands"):
        child_budget(parent, {}, low, later, among=6)
    with pytest.raises(ValidationError, match=f"audit_bytes may be at most {low.audit_bytes}"):
        child_budget(Budget(START), {"audit_bytes": low.audit_bytes + 1}, low, later)


@given(
    st.lists(st.tuples(AMOUNTS, st.integers(0, 1200), st.booleans()), max_size=8),
    st.integers(1, 2000),
    st.integers(0, 2000),
)
def test_children_never_have_more_than_their_parent(
    children: list[tuple[dict[str, int], int, bool]], limit: int, own: int
) -> None:
    """What is consumed and reserved adds up to the limit, whatever is spawned, used and ended."""
    parent = budget(commands=limit)
    parent.consume(Kind.COMMANDS, min(own, limit))
    used = min(own, limit)
    for asked, uses, ends in children:
        try:
            child = child_budget(parent, asked, LEVELS["high"], START)
        except (ValidationError, ConflictError):
            continue
        before = parent.left(Kind.COMMANDS)
        parent.children.append(child)
        granted = child.limits[Kind.COMMANDS]
        assert before is not None
        assert parent.left(Kind.COMMANDS) == before - granted
        consumed = min(uses, granted)
        child.consume(Kind.COMMANDS, consumed)
        used += consumed
        # What it uses was reserved.
        assert parent.left(Kind.COMMANDS) == before - granted
        if ends:
            parent.settle(child)
            parent.settle(child)
            assert parent.left(Kind.COMMANDS) == before - consumed
        assert parent.used(Kind.COMMANDS) == used
        reserved = parent.reserved(Kind.COMMANDS)
        assert parent.left(Kind.COMMANDS) == limit - used - reserved
        assert used + reserved <= limit


def test_reservations_of_grandchildren_are_their_parent_s() -> None:
    top, middle, bottom = budget(tokens=100), budget(tokens=60), budget(tokens=50)
    top.children.append(middle)
    middle.children.append(bottom)
    bottom.consume(Kind.TOKENS, 20)
    assert [each.left(Kind.TOKENS) for each in (top, middle, bottom)] == [40, 10, 30]
    assert [each.used(Kind.TOKENS) for each in (top, middle, bottom)] == [20, 20, 20]
    # The sandbox of the middle one may use what is not the bottom one's.
    assert middle.own_limit(Kind.TOKENS) == 10
    middle.settle(bottom)
    assert [each.left(Kind.TOKENS) for each in (top, middle)] == [40, 40]
    top.settle(middle)
    assert (top.left(Kind.TOKENS), top.own(Kind.TOKENS)) == (80, 0)
    assert top.own_limit(Kind.TOKENS) == 80
