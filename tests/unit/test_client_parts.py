"""The pure parts of the client: events from bytes, objects from JSON, retries."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError as ModelError

from api.http.answer import encode_event
from api.shape.answers import Event
from orchestrator.ground.serving.problems import STATUSES
from paddock.client import errors, requests
from paddock.client.answers import object_of, read
from paddock.client.errors import NotPaddockError, OldServerError, PaddockError, api_error
from paddock.client.requests import segment
from paddock.client.retry import Patience, RetryPolicy, backoff
from paddock.client.sse import EventParser, ServerEvent
from paddock.contract.base import WORDS, Model, Time, model_example

NAMES = st.sampled_from(["stdout", "exit", "session.create"])
EVENTS = st.lists(
    st.builds(
        ServerEvent,
        NAMES,
        st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3),
        st.none() | st.integers(0, 2**60) | st.from_regex(r"\A[A-Za-z_-][A-Za-z0-9_-]*\Z"),
    ),
    max_size=5,
)


def encode(name: str, data: Any, event_id: int | str | None) -> bytes:
    """Encodes an event as the servers do: a gateway's ids are texts."""
    number = event_id if isinstance(event_id, int) else None
    encoded = encode_event(Event(name, pydantic_core.to_json(data).decode(), number))
    return f"id: {event_id}\n".encode() + encoded if isinstance(event_id, str) else encoded


@given(EVENTS, st.lists(st.integers(0, 400), max_size=8))
def test_events_however_they_are_cut(events: list[ServerEvent], cuts: list[int]) -> None:
    sent = b": alive\n\n".join([b"", *(encode(*event) for event in events), b""])
    places = sorted({min(cut, len(sent)) for cut in cuts} | {0, len(sent)})
    parser = EventParser()
    got: list[ServerEvent] = []
    for start, end in pairwise(places):
        got += parser.feed(sent[start:end])
    assert got == events


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_ignored(data: bytes) -> None:
    try:
        EventParser().feed(data)
    except NotPaddockError:
        return


def test_events_that_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (b"data: x\n\n", b"data: []\n\n", b"data: null\n\n"):
        with pytest.raises(NotPaddockError):
            EventParser().feed(text)
    assert EventParser().feed(b"event: a\r\ndata:{}\r\n\r\n") == [ServerEvent("a", {}, None)]
    monkeypatch.setattr("paddock.client.sse._MOST_EVENT_BYTES", 10)
    with pytest.raises(NotPaddockError):
        EventParser().feed(b"data: " + b"x" * 10)


@pytest.mark.parametrize("text", ["", "x", "[1]", "null", b"\xff", "[" * 100_000])
def test_other_texts_are_no_objects(text: str | bytes) -> None:
    assert object_of(text) is None
    assert object_of('{"a": 1}') == {"a": 1}


class Inner(Model):
    number: float


class Outer(Model):
    name: str
    count: int
    time: Time | None
    word: Annotated[Literal["known"], WORDS]
    inners: list[Inner]
    by_name: dict[str, Inner]
    anything: Any
    later: bool = False


def outer(**members: Any) -> dict[str, Any]:
    whole = {
        "name": "a",
        "count": 1,
        "time": "2026-03-04T09:30:11.902771Z",
        "word": "known",
        "inners": [{"number": 1}],
        "by_name": {"x": {"number": 2.5, "more": 3}},
        "anything": [None],
    }
    return {**whole, **members}


def test_objects() -> None:
    parsed = read(Outer, outer(new=1, word="new"))
    assert parsed.time == datetime(2026, 3, 4, 9, 30, 11, 902771, tzinfo=UTC)
    assert parsed.inners[0].number == 1.0
    assert parsed.by_name["x"].raw == {"number": 2.5, "more": 3}
    assert (parsed.later, parsed.word, parsed.raw) == (False, "new", outer(new=1, word="new"))
    assert read(Outer, outer(time=None)).time is None


@pytest.mark.parametrize(
    ("members", "where"),
    [
        ({"count": "1"}, "Outer.count"),
        ({"count": True}, "Outer.count"),
        ({"name": None}, "Outer.name"),
        ({"time": "yesterday"}, "Outer.time"),
        ({"time": "2026-03-04T09:30:11"}, "Outer.time"),
        ({"word": 1}, "Outer.word"),
        ({"inners": {}}, "Outer.inners"),
        ({"inners": [{}]}, r"lacks Outer\.inners\.0\.number"),
        ({"by_name": {"x": 1}}, "Outer.by_name.x"),
        ({"later": 1}, "Outer.later"),
    ],
)
def test_objects_of_another_form(members: dict[str, Any], where: str) -> None:
    with pytest.raises(OldServerError, match=where):
        read(Outer, outer(**members))


def answers(kind: type[Model]) -> Iterator[type[Model]]:
    """Every model of the contract that shows an example of itself."""
    for model in kind.__subclasses__():
        if model.__module__.startswith("paddock.contract") and model.model_config.get(
            "json_schema_extra"
        ):
            yield model
        yield from answers(model)


def newer(value: Any) -> Any:
    """An answer from a later server: each object has an additional, unknown member."""
    if isinstance(value, Model):
        return {name: newer(member) for name, member in value if name in value.model_fields_set} | {
            "newer": [{}]
        }
    if isinstance(value, list):
        return [newer(item) for item in value]
    if isinstance(value, dict):
        return {name: newer(item) for name, item in value.items()}
    return value


def test_every_answer_of_a_newer_server_is_read() -> None:
    models = list(answers(Model))
    assert len(models) > 40
    for model in models:
        example = model_example(model)
        told = newer(model.model_validate(example))
        assert told != example
        assert read(model, told).raw == told
        with pytest.raises(ModelError):
            model.model_validate(told)


def test_times_are_text_as_the_server_tells_it() -> None:
    told = outer(time="2026-03-04T09:30:11.000000Z", by_name={})
    text = read(Outer, told).model_dump_json(include={"time"})
    assert text == '{"time":"2026-03-04T09:30:11.000000Z"}'
    served = Outer.model_validate(told)
    assert served.raw == told
    assert served.model_dump_json(include={"time"}) == text


@pytest.mark.parametrize("members", [{"new": 1}, {"word": "new"}, {"time": "2026-03-04"}])
def test_the_server_is_held_to_the_contract(members: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        Outer.model_validate(outer(by_name={}) | members)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_wild_objects(value: Any) -> None:
    with pytest.raises(OldServerError):
        read(Outer, value)


def test_every_code_has_a_class() -> None:
    for code, status in STATUSES.items():
        if code == "method_not_allowed":  # raised as OldServerError
            continue
        error = api_error(status, {"code": code, "detail": "why", "field": "x"})
        assert type(error) is not errors.PaddockAPIError, code
        assert (error.code, error.status, str(error)) == (code, status, "why")
        assert error.fields == {"field": "x"}


def test_documents_that_lack_something() -> None:
    error = api_error(500, {})
    assert (type(error), error.code, error.detail) == (errors.PaddockAPIError, "", "HTTP 500")
    assert api_error(429, {"retry_after": "x", "rule": 5}, 3.0).retry_after == 3.0


def lost() -> PaddockError:
    return errors.ConnectionLostError("x")


def test_only_reading_is_sent_again() -> None:
    policy = RetryPolicy(gets=2)
    assert policy.delay("GET", lost(), 1, 0) is not None
    assert policy.delay("GET", lost(), 3, 0) is None
    for method in ("POST", "PUT", "DELETE"):
        assert policy.delay(method, lost(), 1, 0) is None
    for final in (errors.NotPaddockError("x"), api_error(404, {"code": "not_found"})):
        assert policy.delay("GET", final, 1, 0) is None
    limited = api_error(429, {"code": "rate_limited", "retry_after": 9})
    assert policy.delay("GET", limited, 1, 0) == 9


def test_capacity_is_waited_for_as_long_as_was_said() -> None:
    full = api_error(503, {"code": "capacity_exhausted", "retry_after": 5})
    policy = RetryPolicy(capacity=12)
    assert [policy.delay("POST", full, 1, waited) for waited in (0, 7, 8)] == [5, 5, None]
    assert RetryPolicy().delay("POST", full, 1, 0) is None


def test_patience() -> None:
    patience = Patience(1000)
    assert 0 < patience.delay(lost()) <= 0.1
    patience.renew()
    assert patience.delay(lost()) <= 0.1
    with pytest.raises(errors.ConnectionLostError):
        Patience(0).delay(lost())


@given(st.integers(1, 10**6))
def test_backoff_is_bounded(failures: int) -> None:
    assert 0 < backoff(failures) <= 5


@given(st.text(min_size=1))
def test_ids_stay_one_segment(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        with pytest.raises(ValueError, match="encode"):
            segment(name)
        return
    quoted = segment(name)
    assert not set(quoted) & set("/?#")
    assert quoted not in (".", "..")


def test_an_empty_id() -> None:
    with pytest.raises(ValueError, match="empty"):
        segment("")


def test_events_are_as_the_server_encodes_them() -> None:
    event = encode("exit", {"text": "a\nb\u2028"}, 7)
    assert EventParser().feed(event) == [
        ServerEvent("exit", json.loads('{"text":"a\\nb\u2028"}'), 7)
    ]


def test_requests_have_the_members_that_are_given() -> None:
    labels = MappingProxyType({"team": "search"})
    body = requests.given(
        labels=labels, tools=("psql",), id="web-1", wait=0, purge=False, image=None
    )
    assert json.loads(json.dumps(body)) == {
        "labels": {"team": "search"},
        "tools": ["psql"],
        "id": "web-1",
        "wait": 0,
        "purge": False,
    }
    with pytest.raises(TypeError, match="exactly one"):
        requests.exec_body(None, None, None, None)
    with pytest.raises(TypeError, match="not a string"):
        requests.exec_body(None, "ls", None, None)
    assert requests.exec_body("cat", None, None, b"\xff") == {
        "command": "cat",
        "stdin_base64": "/w==",
    }
