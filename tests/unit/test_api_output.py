"""Text from bytes that are split anywhere, and Server-Sent Events."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError as ModelError

from api.http.answer import encode_event
from api.operations.output import Piece, TextDecoder, page_text
from api.shape.answers import Event
from api.shape.context import Context
from orchestrator.ground import errors
from orchestrator.ground.errors import CapacityExhaustedError, PaddockError, ValidationError
from orchestrator.ground.serving.errors import describe, problem
from orchestrator.ground.serving.problems import STATUSES, document
from orchestrator.work.commands.running_command import OutputPage
from paddock.contract.base import Model, Time
from paddock.contract.commands import OutputData
from paddock.contract.files import FilePath

_BYTES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from(["é".encode(), b"\xe2\x82", b"a"])).map(b"".join),
)


@given(st.text(max_size=40), st.lists(st.integers(0, 200), max_size=6))
def test_text_does_not_depend_on_the_cuts(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", "replace")
    decoder = TextDecoder()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [decoder.feed("stdout", data[a:b]) for a, b in pairwise(places)]
    pieces += [rest for _, rest in decoder.finish()]
    assert "".join(piece.text for piece in pieces) == data.decode()
    assert not any(piece.data for piece in pieces)


@example(b"\xff" * 9 + "é\N{REPLACEMENT CHARACTER}€".encode(), [1, 10, 11, 15])
@given(_BYTES, st.lists(st.integers(0, 200), max_size=6))
def test_no_byte_is_lost_wherever_it_is_cut(data: bytes, cuts: list[int]) -> None:
    """Where the text is not all of them the bytes are there, too."""
    decoder = TextDecoder()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [decoder.feed("stderr", data[a:b]) for a, b in pairwise(places)]
    pieces += [rest for _, rest in decoder.finish()]
    assert b"".join(_bytes(piece) for piece in pieces) == data
    assert "".join(piece.text for piece in pieces) == data.decode("utf-8", "replace")
    for piece in pieces:
        assert (piece.data is None) == (piece.text.encode() == _bytes(piece))


def _bytes(piece: Piece) -> bytes:
    return piece.text.encode() if piece.data is None else piece.data


@given(_BYTES, st.integers(4, 9))
def test_pages_of_bytes_join_to_the_whole(data: bytes, size: int) -> None:
    after, joined = 0, b""
    while True:
        end = min(len(data), after + size)
        final = end == len(data)
        chunks = [("stdout", after, data[after:end])] if end > after else []
        items, after = page_text(OutputPage(chunks, end, final, False), final=final)
        joined += b"".join(item.data for item in items)
        if final:
            break
    assert joined == data


@given(st.text(max_size=40), st.integers(1, 9))
def test_pages_join_to_the_whole(text: str, size: int) -> None:
    data = text.encode("utf-8", "replace")
    after, joined = 0, ""
    for _ in range(2 * len(data) + 2):
        # A page without a whole character is requested again once there is more.
        end = min(len(data), after + max(size, 4))
        final = end == len(data)
        chunks = [("stdout", after, data[after:end])] if end > after else []
        items, after = page_text(OutputPage(chunks, end, final, False), final=final)
        joined += "".join(item.text for item in items)
        if final:
            break
    assert joined == data.decode()


@given(st.binary(max_size=60))
def test_any_bytes_become_text(data: bytes) -> None:
    items, position = page_text(
        OutputPage([("stderr", 5, data)], 5 + len(data), True, False), final=True
    )
    assert position == 5 + len(data)
    assert "".join(item.text for item in items) == data.decode("utf-8", "replace")


def test_streams_that_are_not_known_are_left_out() -> None:
    page = OutputPage([("stdlog", 0, b"x")], 1, True, False)
    assert page_text(page, final=True) == ([], 1)
    assert TextDecoder().feed("stdlog", b"x") == Piece("")


@given(st.text())
def test_events_stay_on_their_lines(text: str) -> None:
    encoded = encode_event(Event("stdout", OutputData(offset=0, text=text), 7)).decode()
    first, second, third, *end = encoded.split("\n")
    assert (first, second, end) == ("id: 7", "event: stdout", ["", ""])
    assert json.loads(third.removeprefix("data: ")) == {"offset": 0, "text": text}


def test_resume_position() -> None:
    assert context_of(None).resume_position(None) is None
    assert context_of(None).resume_position(4) == 4
    assert context_of("12").resume_position(4) == 12
    with pytest.raises(ValidationError):
        context_of("²").resume_position(None)


def context_of(last_event: str | None) -> Context:
    nothing: Any = None
    return Context(nothing, nothing, nothing, "id", {}, lambda: True, True, last_event)


def test_what_utf_8_can_not_have_is_escaped() -> None:
    assert FilePath(path="a\udcff").encode() == b'{"path":"a\\udcff"}'


def test_what_is_escaped_has_the_same_members() -> None:
    """Members without a value are present, except those that may be left out."""
    members: dict[str, Any] = {"name": "NAME", "nested": {}}
    plain, escaped = _Outer(**members), _Outer(**{**members, "name": "\udcff"})
    assert plain.encode() == b'{"name":"NAME","nested":{"at":null},"count":3}'
    assert escaped.encode() == plain.encode().replace(b"NAME", b"\\udcff")
    sparse = OutputData(offset=0, text="\udcff")
    assert sparse.encode() == b'{"offset":0,"text":"\\udcff"}'


def test_no_answer_has_what_json_has_not() -> None:
    with pytest.raises(ValueError, match="JSON"):
        _Measure(name="\udcff", value=float("nan")).encode()


def test_an_answer_of_the_wrong_form_is_told_without_its_values() -> None:
    with pytest.raises(ModelError) as caught:
        FilePath.model_validate({"path": 7, "secret": "in the open"})
    assert "in the open" not in str(caught.value)


class _Inner(Model):
    at: Time | None = None


class _Outer(Model):
    name: str
    nested: _Inner
    count: int = 3


class _Measure(Model):
    name: str
    value: float


def test_every_domain_error_has_a_status() -> None:
    codes = {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, PaddockError)
    }
    assert codes <= set(STATUSES)


def test_problem_document() -> None:
    error = CapacityExhaustedError("full", retry_after=1.2, status="x")
    response = problem(error, "id")
    assert response.headers["Retry-After"] == "2"
    assert document(error, "id") == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "code": "capacity_exhausted",
        "detail": "full",
        "request_id": "id",
        "retry_after": 1.2,
    }
    assert "boom" not in describe(RuntimeError("boom")).detail
