"""What hooks are told: derived from the record by pure functions, and bounded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.events import OPERATIONS, EventDraft, members, written
from orchestrator.operate.hooks.hook import beneath
from orchestrator.operate.hooks.hook_deliveries import LONGEST_PAUSE, MOST_TRIES, pause
from orchestrator.operate.hooks.messages import (
    MOST_BODY_BYTES,
    HookMessage,
    body_of,
    delivery_id,
    messages_of,
    operations_for,
)
from orchestrator.record.audit.recorded_event import Recorded
from paddock.contract.words import HOOK_EVENTS

TIME = "2026-03-04T09:30:12.482113Z"


def event(operation: str, **more: Any) -> dict[str, Any]:
    """An event as the ledger has it."""
    draft = EventDraft(operation, actor="ci", session_key="k", session_id="fix-1", incarnation=2)
    draft = draft._replace(time=TIME, permission_level="low", workspace_root="/w", **more)
    body, _ = written({"id": 7, "seq": 3, **members(draft)})
    return body | {"prev_hash": "0" * 64, "hash": "1" * 64}


def told(operation: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    found = messages_of(event(operation, **more), HOOK_EVENTS)
    return [(message.type, dict(message.data)) for message in found]


def test_each_type_is_told_of_its_event() -> None:
    (created,) = told("session.create", args={"image": "i", "labels": {"a": "b"}, "env": ["X"]})
    assert created[0] == "session.created"
    assert created[1]["labels"] == {"a": "b"}
    assert "env" not in created[1]
    (child,) = told("session.create", args={"parent": "fix-0"})
    assert (child[1]["parent"], created[1]["parent"]) == ("fix-0", None)
    ended = {"status": "completed", "rationale_code": "normal"}
    (closed,) = told("session.terminated", result=ended, error="why")
    assert closed[0] == "session.closed"
    assert (closed[1] | ended, closed[1]["acknowledged"]) == (closed[1], True)
    assert closed[1]["error"] == "why"
    (failed,) = told("session.terminated", args={"acknowledged": False}, error="no room")
    assert failed[1]["acknowledged"] is False
    (run,) = told("turn.end", result={"kind": "run", "tag": "ok", "tokens": 5}, turn=4)
    assert (run[0], run[1]["run"], run[1]["tokens"]) == ("run.completed", 4, 5)
    (approval,) = told("approval.request", args={"approval_id": "apr-1", "command": "rm x"})
    assert approval[0] == "approval.requested"
    assert (approval[1]["approval_id"], approval[1]["requested_by"]) == ("apr-1", "ci")
    (budget,) = told("budget.exceeded", args={"kind": "tokens", "limit": 1, "consumed": 2})
    assert (budget[0], budget[1]["kind"]) == ("budget.exceeded", "tokens")


def test_a_miss_is_told_before_the_end_that_it_causes() -> None:
    found = told("session.terminated", result={"rationale_code": "CONTEXT_MISS"}, error="a.txt")
    assert [name for name, _ in found] == ["context.miss", "session.closed"]
    assert found[0][1] == {"error": "a.txt"}


def test_nothing_is_told_of_programs_of_turns() -> None:
    assert told("turn.end", result={"kind": "program", "tag": "ok"}) == []
    assert told("turn.end", result={"tag": "ok"}) == []  # of an earlier version


@given(
    operation=st.sampled_from(sorted(OPERATIONS)),
    wanted=st.lists(st.sampled_from(HOOK_EVENTS), max_size=8),
    args=st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.text(), max_size=4),
    result=st.none() | st.dictionaries(st.text(max_size=8), st.text(), max_size=3),
)
def test_only_what_is_wanted_is_told_and_it_is_looked_for(
    operation: str, wanted: list[Any], args: dict[str, Any], result: dict[str, Any] | None
) -> None:
    found = list(messages_of(event(operation, args=args, result=result), wanted))
    assert {message.type for message in found} <= set(wanted)
    assert not found or operation in operations_for(wanted)
    assert len(found) == len({message.type for message in found})


@pytest.mark.parametrize("operation", sorted(operations_for(HOOK_EVENTS)))
def test_events_without_a_session_are_not_told(operation: str) -> None:
    assert not list(messages_of(event(operation) | {"session_id": None}, HOOK_EVENTS))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20_000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(data=st.dictionaries(st.text(max_size=8), _JSON, max_size=6))
def test_a_body_is_bounded_and_says_what_is_left_out(data: dict[str, Any]) -> None:
    body = body_of("dlv-1", event("turn.end"), HookMessage("run.completed", data), "ci")
    try:
        encoded = body.encode()
    except UnicodeEncodeError:
        return  # no event has lone surrogates
    assert len(encoded) <= MOST_BODY_BYTES
    found = json.loads(body)
    assert found["data"].keys() | set(found.get("left_out", [])) == data.keys()
    assert all(found["data"][name] == data[name] for name in found["data"])
    assert found["session"] == {
        "id": "fix-1",
        "incarnation": 2,
        "key": "ci",
        "permission_level": "low",
        "workspace_root": "/w",
    }
    assert (found["id"], found["type"], found["time"]) == ("dlv-1", "run.completed", TIME)
    assert found["event"] == {"id": 7, "seq": 3}


def test_an_id_is_that_of_one_message_to_one_hook() -> None:
    def recorded(digest: str) -> Recorded:
        return Recorded("k", 7, 3, TIME, "session.terminated", "{}", "0" * 64, digest)

    miss, end = HookMessage("context.miss", {}), HookMessage("session.closed", {})
    found = [
        delivery_id(hook, recorded(digest), message)
        for hook in ("one", "two")
        for digest in ("a" * 64, "b" * 64)
        for message in (miss, end)
    ]
    assert len(set(found)) == 8
    assert found[0] == delivery_id("one", recorded("a" * 64), miss)


@given(tries=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_pauses_grow_and_are_bounded(tries: int, chance: float) -> None:
    found = pause(tries, chance)
    assert 0.5 <= found <= LONGEST_PAUSE
    assert pause(tries, 0) / 2 <= found <= pause(tries, 0) <= pause(tries + 1, 0)


def test_tries_take_about_three_hours() -> None:
    assert 2 * 3600 < sum(pause(tries, 0.5) for tries in range(1, MOST_TRIES)) < 4 * 3600


PREFIX = "https://ci.example.com/hooks/"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://ci.example.com/hooks/", True),
        ("https://ci.example.com/hooks/a/b?c=d", True),
        ("https://CI.example.com:443/hooks/a", True),
        ("https://ci.example.com/hooks/a..b", True),
        ("https://ci.example.com/hooks", False),
        ("https://ci.example.com/hooksies/a", False),
        ("https://ci.example.com/", False),
        ("http://ci.example.com/hooks/a", False),
        ("https://ci.example.com:8443/hooks/a", False),
        ("https://ci.example.com:x/hooks/a", False),
        ("https://ci.example.com.evil.com/hooks/a", False),
        ("https://evil.com/hooks/a", False),
        (r"https://evil.com\ci.example.com/hooks/a", False),
        ("https://ci.example.com/hooks/../admin", False),
        ("https://ci.example.com/hooks/%2e%2E/admin", False),
        ("https://ci.example.com/hooks/%252e%252e/admin", False),
        ("https://ci.example.com/hooks/..%2fadmin", False),
        (r"https://ci.example.com/hooks/..\admin", False),
        ("https://ci.example.com/hooks/..;x/admin", False),
    ],
)
def test_urls_beneath_a_prefix(url: str, expected: bool) -> None:
    assert beneath(url, ["https://other.example.com", PREFIX]) == expected


def test_a_prefix_without_a_path_is_a_whole_origin() -> None:
    for prefix in ("https://ci.example.com", "https://ci.example.com/"):
        for url in ("https://ci.example.com", "https://ci.example.com/", PREFIX):
            assert beneath(url, [prefix]), (url, prefix)
    assert not beneath(PREFIX, [])
    assert beneath("https://a.example/hooks", ["https://a.example/hooks"])
    assert beneath("https://a.example/hooks/b", ["https://a.example/hooks"])
