"""Outcomes of turns: their members, and their JSON."""

import json

import pytest

from orchestrator.programs.turns.outcome import (
    MEMBERS,
    Metadata,
    Outcome,
    Symbol,
    Value,
    error,
    needs,
    nonconverged,
    ok,
    plain,
    proposed,
)
from orchestrator.programs.turns.programs import ScopeExceeded

ALL = [
    ok(5),
    proposed("done", ["src/a.py"]),
    nonconverged(None, 3, "budget"),
    Outcome("cycle", (1, 2, ("aa", "bb"))),
    needs("needs-approval", "commit", (1, 2)),
    error("no", "runtime-error", ["f 1:2"]),
]


def test_each_tag_has_its_members() -> None:
    assert [outcome.tag for outcome in ALL] == list(MEMBERS)
    for outcome in ALL:
        names = list(outcome.json())
        assert names == ["tag", *MEMBERS[outcome.tag], "metadata"]
        assert [plain(outcome.member(name)) for name in names[1:-1]] == [
            outcome.json()[name] for name in names[1:-1]
        ]


def test_values() -> None:
    assert [outcome.value for outcome in ALL] == [5, "done", None, 1, None, None]
    with pytest.raises(KeyError):
        ok(1).member("message")


def test_members_must_be_complete() -> None:
    with pytest.raises(ValueError, match="value, iterations, reason"):
        Outcome("nonconverged", (1,))


def test_json() -> None:
    value = (Symbol("a"), "b", (), ((1,), 2.5), None, True, ok((1, ok(2))))
    assert plain(value) == [
        "a",
        "b",
        [],
        [[1], 2.5],
        None,
        True,
        {
            "tag": "ok",
            "value": [1, {"tag": "ok", "value": 2, "metadata": {}}],
            "metadata": {},
        },
    ]
    assert type(plain(Symbol("a"))) is str
    metadata = Metadata(tokens=0, cost_microdollars=5)
    assert Outcome("ok", (1,), metadata).json() == {
        "tag": "ok",
        "value": 1,
        "metadata": {"tokens": 0, "cost_microdollars": 5},
    }
    assert "stacktrace" not in error("no", "runtime-error").json()


def test_depth_does_not_matter() -> None:
    value: Value = ()
    for _ in range(100_000):
        value = (value,)
    shown = plain(value)
    for _ in range(100_000):
        (shown,) = shown
    assert shown == []


def test_outcomes_can_be_written() -> None:
    assert json.loads(json.dumps([outcome.json() for outcome in ALL]))


def test_a_scope_that_is_used_up_says_so() -> None:
    exceeded = ScopeExceeded(1, "tokens")
    assert (exceeded.scope, exceeded.kind) == (1, "tokens")
    assert str(exceeded) == "the budget of tokens is used up"
