"""The registry: every session by id, handle and work; what has ended is kept for a while."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.ground.errors import CapacityExhaustedError, ConflictError
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.slots import Workspace
from orchestrator.rules.access.keys import digest, new_handle
from orchestrator.rules.policy.levels import clamped_limits, load_levels
from orchestrator.state import registry as module
from orchestrator.state.budget import Budget
from orchestrator.state.lifecycle import Suspension, Termination
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session
from orchestrator.state.terms import Terms
from paddock.contract.words import Rationale, Status

LEVEL = load_levels()["low"]
TTL = 300


def session(name: str, **members: Any) -> Session:
    at = "2026-03-04T09:30:00.000000Z"
    return Session(
        **{
            "key": f"key-{name}",
            "id": name,
            "owner": "ci",
            "status": Status.ACTIVE,
            "level": LEVEL,
            "terms": Terms(idle_timeout=60, work_id=members.pop("work_id", None)),
            "limits": clamped_limits(LEVEL, {}),
            "budget": Budget(datetime.fromisoformat(at), {}),
            "handle_sha256": digest(new_handle()),
            "workspace": Workspace(name, "ci", 1, "slot", "", Quota.NONE),
            "root_dir": "/",
            "created_at": at,
            "last_activity_at": at,
            **members,
        }
    )


def ended(one: Session, seconds_ago: float = 0) -> Session:
    at = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    one.status = Status.COMPLETED
    one.termination = Termination(Rationale.NORMAL, "SUCCESS", None, at)
    return one


async def test_a_duplicate_id_is_refused_and_the_first_one_stays() -> None:
    registry, first = Registry(TTL), session("box")
    registry.reserve(first)
    for _ in range(2):
        with pytest.raises(ConflictError):
            registry.reserve(session("BOX"))
        registry.add(first)
    assert registry.get("box") is first
    assert registry.live == [first]


async def test_the_handle_of_an_ended_session_finds_nothing_and_its_id_does_for_a_while() -> None:
    registry, one, other = Registry(TTL), session("one"), session("other")
    for each in (one, other):
        registry.add(each)
        assert registry.by_handle(each.handle_sha256) is each
    for _ in range(2):  # the second time changes nothing
        registry.end(ended(one))
    assert registry.by_handle(one.handle_sha256) is None
    assert (registry.get("one"), registry.live) == (one, [other])
    registry.end(session("unknown", status=Status.ABORTED))
    assert registry.live == [other]
    ended(one, TTL + 1)
    assert registry.get("one") is None
    assert registry.all == [other]


async def test_more_ended_sessions_than_the_cap_are_forgotten_the_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_ENDED", 3)
    registry = Registry(TTL)
    for number in range(5):
        registry.end(ended(session(f"s{number}"), seconds_ago=10 - number))
    assert [each.id for each in registry.all] == ["s2", "s3", "s4"]


async def test_too_many_sessions_are_refused_and_none_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_LIVE", 2)
    registry = Registry(TTL)
    registry.add(session("one", suspension=Suspension.SUSPENDED))
    registry.reserve(session("two"))
    with pytest.raises(CapacityExhaustedError) as refused:
        registry.reserve(session("three"))
    assert refused.value.fields["retry_after"] > 0
    assert len(registry) == 2


async def test_suspended_sessions_hold_no_sandbox_and_count_in_their_keys_limits() -> None:
    registry = Registry(TTL)
    suspended = session("one", suspension=Suspension.SUSPENDED)
    for each in (suspended, session("two"), session("x", suspension=Suspension.BEGINNING)):
        registry.add(each)
    registry.reserve(session("three"))
    assert (len(registry), registry.with_sandbox) == (4, 3)
    assert registry.usage("ci").sessions == 4
    suspended.suspension = Suspension.RESTORING
    assert registry.with_sandbox == 4
