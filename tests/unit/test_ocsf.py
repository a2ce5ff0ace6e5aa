"""The record in OCSF: every operation, against the published schema."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from orchestrator.ground.events import OPERATIONS
from orchestrator.operate.exports.ocsf import OcsfSource, ocsf_event
from orchestrator.operate.exports.ocsf_kinds import KINDS, OCSF_VERSION, OcsfClass

SOURCE = OcsfSource("instance-1", "0.1.0")
PUBLISHED = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=OCSF_VERSION))
VALIDATORS: dict[tuple[int, tuple[str, ...]], jsonschema.Draft202012Validator] = {}


def recorded(operation: str, **members: Any) -> dict[str, Any]:
    return {
        "id": 7,
        "seq": 3,
        "time": "2026-03-04T09:30:12.482113Z",
        "session_id": "fix-1",
        "incarnation": 1,
        "turn": None,
        "source": "control-plane",
        "actor": "ci",
        "operation": operation,
        "decision": "allow",
        "rule": None,
        "permission_level": "medium",
        "workspace_root": "/w",
        "args": {},
        "result": None,
        "error": None,
        "duration_ms": None,
        "tokens_used": None,
        "agent": None,
        "prev_hash": "0" * 64,
        "hash": "1" * 64,
        **members,
    }


def check(found: dict[str, Any]) -> None:
    """Raises if the event is not as the published class demands, with these profiles alone."""
    profiles = found["metadata"]["profiles"]
    key = found["class_uid"], tuple(profiles)
    if key not in VALIDATORS:
        name = PUBLISHED.lookup_class_name_from_uid(found["class_uid"])
        schema = PUBLISHED.get_class_schema(name, profiles)
        VALIDATORS[key] = jsonschema.Draft202012Validator(schema)
    VALIDATORS[key].validate(found)


def test_every_operation_has_a_kind_and_no_other_has() -> None:
    assert KINDS.keys() == OPERATIONS


def test_classes_and_activities_have_the_published_numbers_and_names() -> None:
    classes = get_ocsf_schema(version=OCSF_VERSION)["classes"]
    for each in OcsfClass:
        published = classes[each.schema_name]
        assert (published["uid"], published["category_uid"]) == (each.uid, each.category_uid)
    for operation, kind in KINDS.items():
        attributes = classes[kind.of.schema_name]["attributes"]
        activities = attributes["activity_id"]["enum"]
        assert activities[str(kind.activity_id)]["caption"] == kind.activity, operation
        assert str(kind.type_uid) in attributes["type_uid"]["enum"], operation


@pytest.mark.parametrize("decision", ["allow", "deny", "pending", None])
def test_every_operation_is_valid(decision: str | None) -> None:
    for operation in OPERATIONS:
        for session_id in ("fix-1", None):
            event = recorded(operation, decision=decision, session_id=session_id, rule="argv")
            check(ocsf_event(event, "chain-1", SOURCE))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        *("command_id", "argv", "cwd", "path", "source", "destination", "host", "port", "name"),
        *("id", "exit_code", "sent_bytes", "received_bytes", "connection_id", "trace_id", "key"),
    ]
)


@given(
    st.sampled_from(sorted(OPERATIONS)),
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.none() | st.dictionaries(NAMES, VALUES, max_size=6),
    st.none() | st.text(max_size=20),
)
def test_whatever_is_on_record_is_valid_and_nothing_is_left_out(
    operation: str, args: dict[str, Any], result: dict[str, Any] | None, error: str | None
) -> None:
    """A compromised agent may report members with any values."""
    event = recorded(operation, args=args, result=result, error=error)
    found = ocsf_event(event, "chain-1", SOURCE)
    check(found)
    kept = str(found)
    for value in (*args.values(), *(result or {}).values()):
        if isinstance(value, int):
            assert str(value) in kept


def test_a_command_in_full() -> None:
    event = recorded(
        "command.start",
        args={"command_id": "c1", "argv": ["/bin/echo", "a b"], "cwd": "/workspace", "timeout": 20},
    )
    found = ocsf_event(event, "chain-1", SOURCE)
    assert found["process"] == {
        "uid": "c1",
        "sandbox": "fix-1",
        "cmd_line": "/bin/echo 'a b'",
        "name": "echo",
        "working_directory": "/workspace",
    }
    assert (found["class_uid"], found["activity_id"], found["type_uid"]) == (1007, 1, 100701)
    assert found["time"] == 1772616612482
    assert found["metadata"]["sequence"] == 3
    assert found["metadata"]["uid"] == "1" * 64
    assert found["actor"]["user"] == {"name": "ci"}
    assert found["action_id"] == 1
    assert found["unmapped"]["args"] == {"timeout": 20}


def test_an_operation_of_a_later_version_is_not_left_out() -> None:
    found = ocsf_event(recorded("later.than.this", args={"x": 1}), "chain-1", SOURCE)
    check(found)
    assert found["unmapped"]["args"] == {"x": 1}


def test_a_denied_connection() -> None:
    event = recorded(
        "egress.request",
        decision="deny",
        rule="egress_host",
        error="not allowed",
        args={"host": "evil.example", "port": 443, "method": "CONNECT"},
    )
    found = ocsf_event(event, "chain-1", SOURCE)
    assert found["dst_endpoint"] == {"hostname": "evil.example", "port": 443}
    assert found["src_endpoint"] == {"uid": "fix-1"}
    assert (found["action_id"], found["status_id"], found["severity_id"]) == (2, 2, 3)
    assert found["policy"] == {"name": "egress_host"}
