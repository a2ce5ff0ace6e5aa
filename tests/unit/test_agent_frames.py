"""Frames from an agent have limits by kind, and any content is either accepted or refused."""

import json
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.strict_json import count
from orchestrator.host.link.frames import EVENT, HELLO, Bounds, bounds, parse_frame
from orchestrator.host.link.messages import AgentEvent, domain_error, parse_event, parse_hello
from orchestrator.state.command import exit_of
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.output import Output
from sandbox_agent.core.outputs import event_output
from sandbox_agent.decide.frames import FrameError, encode, notification, result
from sandbox_agent.decide.protocol import (
    AGENT_OPERATIONS,
    CHUNK_BYTES,
    MAX_FRAME_BYTES,
    MOST_EVENT_OUTPUT_BYTES,
    MOST_EVENT_OUTPUT_CHUNKS,
)

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**290, max_value=10**300)
    | st.floats()
    | st.text(max_size=20)
)
JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_HELLO = {
    **{"boot_id": "0" * 16, "running": [], "finished": [], "terminals": [], "landlock_abi": 7},
    "configured": True,
}
_EVENT = {"boot_id": "0" * 16, "seq": 1, "operation": "command.exit", "args": {}, "result": {}}
_COUNTS = ("cut_bytes", "stored_bytes", "output_bytes", "leftover_killed")
_NAMES = st.sampled_from(
    ["exit_code", "signal", "reason", "timed_out", *_COUNTS, "session_cpu_us", "truncated", "x"]
)


def test_what_is_large_is_what_was_asked_for() -> None:
    assert bounds(accepted=False, asked=()) == HELLO
    assert bounds(accepted=True, asked=()) == EVENT
    assert bounds(accepted=True, asked=["output"]).bytes < 1024 * 1024
    assert bounds(accepted=True, asked=["output", "file.list"]).bytes == MAX_FRAME_BYTES


@given(JSON)
def test_values_are_counted_as_they_are(value: Any) -> None:
    """The count is never too low, and commas within strings do not count."""
    try:
        body = json.dumps({"jsonrpc": "2.0", "params": value}, allow_nan=False).encode()
    except ValueError:
        reject()
    count = _count(value)
    with pytest.raises(FrameError):
        parse_frame(body, Bounds(len(body), (count - 1) // 2))
    assert parse_frame(body, Bounds(len(body), 2 * count + 8))


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1


def test_bytes_are_accepted_where_they_were_requested_only() -> None:
    body = encode(result(1, {"data": b"x" * CHUNK_BYTES}))[4:]
    for asked in ([], ["output"], ["file.list"], ["pty.read", "output"]):
        with pytest.raises(FrameError):
            parse_frame(body, bounds(True, asked))
    with pytest.raises(FrameError):
        parse_frame(body, bounds(False, ["file.pull"]))
    assert parse_frame(body, bounds(True, ["file.pull"]))["result"]["data"] == b"x" * CHUNK_BYTES
    # One with more values than an event is refused, bytes or not.
    many = encode(result(1, {"data": b"", "x": [0] * 5000}))[4:]
    with pytest.raises(FrameError, match="values"):
        parse_frame(many, bounds(True, ["file.pull"]))


@pytest.mark.parametrize("text", ['",[{\\', "\\\\", '\\"', ",", "é,\n"])
def test_what_is_in_texts_is_no_value(text: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "params": [text * 1000, text]}).encode()
    assert parse_frame(body, Bounds(len(body), 8))["params"] == [text * 1000, text]


def test_quotes_alone_are_refused_before_they_are_taken_apart() -> None:
    body = b'{"jsonrpc":"2.0","x":[' + b'",' * 1_000_000
    assert count(body, 96 * 1024) > 96 * 1024
    with pytest.raises(FrameError, match="values"):
        parse_frame(body, Bounds(MAX_FRAME_BYTES, 96 * 1024))


@given(
    st.dictionaries(st.sampled_from([*_HELLO, "seccomp", "secrets", "session_cpu_us", "y"]), JSON)
)
def test_any_hello_is_believed_or_refused(members: dict[str, Any]) -> None:
    try:
        hello = parse_hello({**_HELLO, **members})
    except ValueError:
        return
    assert "y" not in members
    assert all(0 <= total < 2**53 for total in hello.totals.values())


@given(
    st.dictionaries(st.sampled_from([*_EVENT, "decision", "rule", "error", "duration_ms"]), JSON),
    st.dictionaries(_NAMES, JSON),
)
def test_any_event_is_believed_or_refused(members: dict[str, Any], outcome: dict[str, Any]) -> None:
    """An accepted event can be stored and sent to a client."""
    try:
        event = parse_event({**_EVENT, "result": outcome, **members})
    except ValueError:
        return
    assert event.operation in AGENT_OPERATIONS
    json.dumps([event.args, event.result], allow_nan=False)
    _check_told(event)


@pytest.mark.parametrize("operation", ["command.exit", "pty.exit"])
@pytest.mark.parametrize("exit_code", ["0", -1, 256, 1.0, True])
def test_an_exit_code_that_is_none_is_a_violation(operation: str, exit_code: Any) -> None:
    with pytest.raises(ValueError, match="exit_code"):
        parse_event({**_EVENT, "operation": operation, "result": {"exit_code": exit_code}})


_EXIT = {**_EVENT, "operation": "command.exit", "result": {"exit_code": 0}, "duration_ms": 1}


@pytest.mark.parametrize(
    "output",
    [
        "text",
        {},
        [["stdout", 0]],
        [["stdout", 0, "eHg=", 1]],
        [[1, 0, "eHg="]],
        [["stdout", -1, "eHg="]],
        [["stdout", True, "eHg="]],
        [["stdout", "0", "eHg="]],
        [["stdout", 2**53, "eHg="]],
        [["stdout", 0, "x"]],
        [["stdout", 0, "é"]],
        [["stdout", 0, None]],
        [["stdout", 0, ""]] * (MOST_EVENT_OUTPUT_CHUNKS + 1),
        [["stdout", 0, "eHh4" * (MOST_EVENT_OUTPUT_BYTES // 3 + 1)]],
    ],
)
def test_output_that_no_end_has_is_a_violation(output: Any) -> None:
    with pytest.raises(ValueError, match=r"output|padding|ASCII|base64"):
        parse_event({**_EXIT, "output": output})


def test_output_comes_with_ends_of_commands_only() -> None:
    chunk = ["stderr", 7, "eHg="]
    assert parse_event({**_EXIT, "output": [chunk]}).output == (("stderr", 7, b"xx"),)
    assert parse_event({**_EXIT, "output": []}).output == ()
    assert parse_event(_EXIT).output is None
    other = {**_EXIT, "operation": "pty.exit", "output": [chunk]}
    assert parse_event(other).output is None


@pytest.mark.parametrize("pieces", [1, MOST_EVENT_OUTPUT_CHUNKS])
def test_all_output_that_an_end_may_have_fits_into_its_frame(pieces: int) -> None:
    output = Output(4 * MOST_EVENT_OUTPUT_BYTES, keep_tail=False)
    for number in range(pieces):
        output.add(("stdout", "stderr")[number % 2], b"x" * (MOST_EVENT_OUTPUT_BYTES // pieces))
    chunks = event_output(output)
    assert chunks is not None
    text = dict.fromkeys(("error", "rule"), "x" * 2048)
    body = encode(notification("event", {**_EXIT, **text, "output": chunks}))[4:]
    found = parse_event(parse_frame(body, EVENT)["params"])
    assert sum(len(data) for _, _, data in found.output or ()) == MOST_EVENT_OUTPUT_BYTES
    output.add("stdout", b"x")
    assert event_output(output) is None


def test_output_of_too_many_pieces_is_not_told() -> None:
    output = Output(4 * MOST_EVENT_OUTPUT_BYTES, keep_tail=False)
    for number in range(MOST_EVENT_OUTPUT_CHUNKS + 1):
        output.add(("stdout", "stderr")[number % 2], b"x")
    assert event_output(output) is None


def test_output_is_told_once() -> None:
    sent: list[Any] = []
    events = EventBuffer("0" * 16, sent.append)
    events.emit("command.exit", once={"output": []}, args={}, result={}, error=None)
    events.replay(0)
    assert ["output" in message["params"] for message in sent] == [True, False]


def _check_told(event: AgentEvent) -> None:
    told = exit_of(event.result, event.error, event.rule, event.duration_ms, 1, "h")
    if event.operation in ("command.exit", "pty.exit"):
        assert told.exit_code is None or 0 <= told.exit_code <= 255
        for name in (*_COUNTS, "duration_ms"):
            assert 0 <= getattr(told, name) < 2**53


@given(JSON | st.fixed_dictionaries({"data": JSON, "message": JSON}))
def test_any_error_is_one_of_ours(error: Any) -> None:
    failed = domain_error(error)
    assert isinstance(failed, PaddockError)
    assert len(failed.detail) <= 4096
