"""Request bodies and query strings: what is refused, and that every refusal is clear."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from api.http.endpoint import read_query
from api.shape.objects import parse_object, validated
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.strict_json import MAX_DEPTH
from paddock.contract.command_requests import ExecBody, SignalBody
from paddock.contract.files import ListQuery
from paddock.contract.session_requests import SessionBody, SessionsQuery

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(texts, values, max_size=5))
def test_every_object_of_plain_text_is_read(value: dict[str, Any]) -> None:
    assert parse_object(json.dumps(value).encode()) == value
    assert parse_object(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parse_object(data)
    except ValidationError as error:
        error.detail.encode()


@given(st.dictionaries(texts, values, max_size=8))
def test_any_object_is_a_request_or_refused(value: dict[str, Any]) -> None:
    details: list[str] = []
    for model in (SessionBody, ExecBody, SignalBody):
        try:
            validated(model, value)
        except ValidationError as error:
            details.append(error.detail)
    assert all(details)
    assert not any("Input" in detail for detail in details)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('{"a": {"b": ["x", "\\u0000"]}}', "a.b.1 must not contain NUL"),
        ('{"a": "\\udc00"}', "a must not contain lone surrogates"),
        ('{"a": {"\\ud800": 1}}', "a name in a must not contain lone surrogates"),
        ('{"a": 1, "a": 2}', "the body must be JSON: a appears twice"),
        ('{"a": {"b": 1, "b": 2}}', "the body must be JSON: b appears twice"),
        ('{"a": NaN}', "the body must be JSON: NaN is not a JSON value"),
        ("[1]", "the body must be a JSON object"),
        ('{"a":' * 40 + "1" + "}" * 40, f"the body is nested more than {MAX_DEPTH} deep"),
        ('{"a":' * 9999, "the body"),
    ],
)
def test_refusals_name_the_place(text: str, detail: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_object(text.encode())
    assert caught.value.detail.startswith(detail)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ({"limits": {"cpus": "1"}}, "limits.cpus must be a valid number"),
        ({"limits": {"pids": 0}}, "limits.pids must be greater than or equal to 1"),
        ({"labels": {"a:b": ""}}, r"labels.a:b must match pattern '^[^\x00-\x1f\x7f:=]{1,128}$'"),
        ({"labels": {"a": "x" * 1025}}, "labels.a must have at most 1024 characters"),
        ({"x" * 500: 1}, "x" * 64 + "… is not a known field"),
        ({"permission_level": "Low"}, "permission_level must be low|medium|high"),
    ],
)
def test_sentences(value: dict[str, Any], detail: str) -> None:
    with pytest.raises(ValidationError) as caught:
        validated(SessionBody, value)
    assert caught.value.detail == detail


@pytest.mark.parametrize(
    ("signal", "number"), [("TERM", 15), ("SIGTERM", 15), (15, 15), ("KILL", 9), ("CONT", 18)]
)
def test_signals(signal: str | int, number: int) -> None:
    assert validated(SignalBody, {"signal": signal}).signal == number


@given(texts)
def test_query_text_arrives_as_it_was(text: str) -> None:
    request = make_mocked_request("GET", "/x?" + urlencode({"path": text or "a"}))
    assert read_query(request, ListQuery).path == (text or "a")


def test_query_defaults_and_values() -> None:
    query = read_query(make_mocked_request("GET", "/x"), SessionsQuery)
    assert (query.limit, query.label) == (100, None)
    request = make_mocked_request("GET", "/x?limit=5&label=a:b:c&status=active")
    query = read_query(request, SessionsQuery)
    assert (query.limit, query.label, query.status) == (5, ("a", "b:c"), "active")
