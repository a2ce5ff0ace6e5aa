"""Denials are counted by session, operation and rule."""

from typing import Any

from orchestrator.record.audit.denials import MOST_GROUPS, grouped


def denial(session: str, rule: str, **args: Any) -> dict[str, Any]:
    return {
        "session_id": session,
        "incarnation": 1,
        "operation": "command.start",
        "rule": rule,
        "args": args,
    }


def test_the_largest_group_comes_first_with_its_latest_denial() -> None:
    events = [
        denial("one", "paths", number=3),
        denial("one", "command-allowlist", repeats=5),
        denial("one", "paths", number=2),
        denial("two", "paths", number=1),
    ]
    found = grouped(events)
    assert [(group.latest["session_id"], group.latest["rule"], group.times) for group in found] == [
        ("one", "command-allowlist", 5),
        ("one", "paths", 2),
        ("two", "paths", 1),
    ]
    assert found[1].latest["args"] == {"number": 3}


def test_what_a_sandbox_reports_of_repeats_is_not_believed() -> None:
    found = grouped([denial("one", "paths", repeats=value) for value in ("9", -4, None, [1])])
    assert [group.times for group in found] == [4]


def test_groups_are_bounded() -> None:
    assert len(grouped(denial(str(number), "paths") for number in range(99))) == MOST_GROUPS
