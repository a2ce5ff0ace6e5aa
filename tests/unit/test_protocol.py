"""Frames between control plane and agent."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.frames import (
    FrameDecoder,
    FrameError,
    encode,
    failure,
    notification,
    request,
    result,
)
from sandbox_agent.decide.protocol import MAX_FRAME_BYTES, Message

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4
        )
    ),
    max_leaves=10,
)
PARAMS = st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES)


@given(st.lists(PARAMS, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_any_cut_of_the_stream_gives_the_same_messages(
    params: list[Message], cuts: list[int]
) -> None:
    messages = [request(number, "exec", value) for number, value in enumerate(params)]
    stream = b"".join(encode(message) for message in messages)
    decoder = FrameDecoder()
    received: list[Message] = []
    position = turn = 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        received += decoder.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert received == messages


@given(st.binary(max_size=500), PARAMS, st.booleans())
def test_bytes_travel_as_they_are(data: bytes, members: Message, answers: bool) -> None:
    members = {**members, "data": data}
    message = result(3, members) if answers else request(3, "file.push", members)
    frame = encode(message)
    assert FrameDecoder().feed(frame) == [message]
    assert data in frame
    assert members["data"] == data, "the message itself is not changed"
    for end in range(1, len(frame)):
        assert FrameDecoder().feed(frame[:end]) == []


@given(st.binary(max_size=200))
def test_garbage_that_claims_to_carry_bytes(data: bytes) -> None:
    body = b"\0" + data
    with pytest.raises(FrameError):
        FrameDecoder().feed(struct.pack(">I", len(body)) + body)


@given(st.binary(max_size=200))
def test_garbage_is_a_frame_error_or_nothing(data: bytes) -> None:
    try:
        for message in FrameDecoder().feed(data):
            assert message["jsonrpc"] == "2.0"
    except FrameError:
        pass


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"jsonrpc": "1.0"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"\0\0\0",
        b"\0\0\0\0\x20{}",
        b'\0\0\0\0\x11{"jsonrpc":"2.0"}x',
        b'\0\0\0\0\x1d{"jsonrpc":"2.0","result":[]}x',
        *(
            b'{"jsonrpc": "2.0", "params": {"time": [%b]}}' % number
            for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999")
        ),
    ],
    ids=[
        *("empty", "cut", "array", "null", "version", "bytes", "deep"),
        *("no-length", "long-length", "nothing-to-carry", "no-object-to-carry"),
        *("nan", "infinity", "-infinity", "1e999", "-1e999"),
    ],
)
def test_what_is_not_json_rpc_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        FrameDecoder().feed(struct.pack(">I", len(body)) + body)


def test_an_oversized_frame_is_refused_by_its_length_alone() -> None:
    with pytest.raises(FrameError):
        FrameDecoder().feed(struct.pack(">I", MAX_FRAME_BYTES + 1))
    with pytest.raises(FrameError):
        encode(notification("event", {"text": "x" * MAX_FRAME_BYTES}))


def test_answers_carry_the_request_id() -> None:
    assert json.loads(encode(result(7, {"a": 1}))[4:]) == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {"a": 1},
    }
    error = json.loads(encode(failure(7, "busy", "full", "rule"))[4:])["error"]
    assert error["data"] == {"code": "busy", "rule": "rule"}
