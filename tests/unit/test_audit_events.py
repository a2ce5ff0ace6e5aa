import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.events import (
    MAX_OBJECT_BYTES,
    MAX_TEXT_BYTES,
    EventDraft,
    EventError,
    members,
    printable,
    written,
)
from orchestrator.record.audit.recorded_event import Recorded, full_event
from paddock.audit.chain import canonical, chain_hash

ANY_TEXT = st.text(st.characters(codec=None, categories=None))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ANY_TEXT, inner, max_size=5),
    max_leaves=20,
)


def draft(**changes: Any) -> EventDraft:
    return EventDraft(
        **{
            "session_key": "k",
            "session_id": "s",
            "source": "control-plane",
            "actor": "admin",
            "operation": "command.start",
            **changes,
        }
    )


def test_canonical_text_and_hash() -> None:
    event = {"b": "é\x1b", "a": [1, None, True], "c": {"z": 1, "y": "\U0001f600"}}
    text = canonical(event)
    assert text == '{"a":[1,null,true],"b":"é\\u001b","c":{"y":"\U0001f600","z":1}}'
    assert chain_hash("0" * 64, text) == hashlib.sha256(("0" * 64 + text).encode()).hexdigest()
    assert full_event(text, "p", "h") == event | {"prev_hash": "p", "hash": "h"}


def test_members_are_those_of_the_contract() -> None:
    event = members(
        draft(
            args={"argv": ("ls", "\udc80")},
            command_id="c-1",
            agent=("boot", 3),
            result={"exit_code": 0},
        )
    )
    assert set(event) == {
        "time", "session_id", "incarnation", "turn", "source", "actor", "operation", "decision",
        "rule",
        "permission_level", "workspace_root", "args", "result", "error", "duration_ms",
        "tokens_used", "agent",
    }  # fmt: skip
    assert event["args"] == {"argv": ["ls", "\\udc80"], "command_id": "c-1"}
    assert event["agent"] == {"boot_id": "boot", "seq": 3}
    assert len(event["time"]) == len("2026-01-01T00:00:00.000000Z")


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "command.unknown"},
        {"source": "client"},
        {"decision": "maybe"},
        {"time": "2026-01-01T00:00:00Z"},
        {"time": "2026-01-01T00:00:00.000000Z\n"},
        {"session_key": ""},
        {"args": {"seconds": 1.0}},
        {"args": {"data": b"x"}},
        {"args": {1: 2}},
        {"args": {"n": 2**63}},
        {"args": ["x"]},
        {"result": {"deep": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}},
        {"duration_ms": 1.5},
        {"duration_ms": -1},
        {"turn": True},
        {"error": 5},
        {"agent": ("boot", 0)},
        {"agent": ("", 1)},
        {"agent": ("b" * 65, 1)},
    ],
)
def test_what_can_not_be_recorded_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(EventError):
        members(draft(**changes))


def test_errors_name_the_member() -> None:
    with pytest.raises(EventError, match="args: float values"):
        members(draft(args={"a": [0.5]}))


def test_escapes() -> None:
    assert printable("a\0b\udcffc\ud83d") == "a\\x00b\\udcffc\\ud83d"
    assert printable({"\0": ["\udc80"]}) == {"\\x00": ["\\udc80"]}
    assert printable("é\n\x1b") == "é\n\x1b"


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 50_000, "\udcff" * 5_000])
def test_long_strings_are_cut_and_say_so(text: str) -> None:
    value = printable(text)
    assert len(value.encode()) <= MAX_TEXT_BYTES
    assert value.endswith(" more bytes]")
    kept, _, rest = value.rpartition("[")
    total = len(text.encode("utf-8", "backslashreplace"))
    assert len(kept.encode()) + int(rest.split()[0]) == total


def test_large_objects_are_cut() -> None:
    event, _ = written(
        members(draft(args={"argv": ["x" * 50] * 100_000, "cwd": "/"}, command_id="c"))
    )
    assert event["args"]["cwd"] == "/"
    assert event["args"]["command_id"] == "c"
    assert event["args"]["argv"].startswith('["xxx')
    many, _ = written(
        members(draft(args={f"{n:05}": "x" * 50 for n in range(5000)}, command_id="c"))
    )
    assert set(many["args"]) == {"truncated", "command_id"}


@given(JSON)
def test_printable_is_stable_json_without_surrogates(value: Any) -> None:
    once = printable(value)
    assert printable(once) == once
    text = json.dumps(once, ensure_ascii=False)
    assert json.loads(text.encode("utf-8")) == once
    assert "\\u0000" not in text


LARGE = st.text(st.characters(codec=None, categories=None), min_size=200).map(
    lambda text: text * 40
)
OBJECTS = st.dictionaries(ANY_TEXT, JSON | LARGE, max_size=4)


@given(OBJECTS, st.none() | OBJECTS, st.none() | ANY_TEXT, st.integers(1, 2**63 - 1))
def test_an_events_text_is_made_once_and_is_the_canonical_one(
    args: dict[str, Any], result: dict[str, Any] | None, error: str | None, place: int
) -> None:
    body = members(draft(args=args, result=result, error=error, agent=("boot", 1)))
    event, text = written({"id": place, "seq": place + 1, **body})
    assert text == canonical(event)
    for value in (event["args"], event["result"]):
        assert len(canonical(value).encode()) <= MAX_OBJECT_BYTES
    recorded = Recorded("k", place, place + 1, "", "command.start", text, "0" * 64, "f" * 64)
    assert recorded.line.isascii()
    assert recorded.line.isprintable()  # no line break in it
    assert json.loads(recorded.line) == recorded.event
    assert recorded.event == json.loads(text) | {"prev_hash": "0" * 64, "hash": "f" * 64}
