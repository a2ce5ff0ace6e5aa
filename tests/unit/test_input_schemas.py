"""Schemas of what tools take: which can be used, and bounded checks of arguments."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.tools.schemas import UnusableSchemaError, check_input_schema, input_problem
from tests.support.cases import each

OBJECT = {"type": "object"}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@each(
    ("schema", "said"),
    [
        ({}, "type must be object"),
        ({"type": "array"}, "type must be object"),
        ({"type": "object", "properties": 3}, "properties"),
        (OBJECT | {"properties": {"a": {"pattern": "(a+)+$"}}}, "pattern is not supported"),
        (OBJECT | {"properties": {"a": {"$ref": "#"}}}, "$ref is not supported"),
        (OBJECT | {"properties": {"a": {"uniqueItems": True}}}, "uniqueItems is not supported"),
        (OBJECT | {"unevaluatedProperties": False}, "unevaluatedProperties is not supported"),
    ],
)
async def test_a_schema_that_is_not_usable(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(UnusableSchemaError) as refused:
        check_input_schema(schema)
    assert said in str(refused.value)


@each(
    ("members", "problem"),
    [
        ({"n": 3}, None),
        ({"n": 3, "names": ["a"]}, None),
        ({}, "'n' is a required property"),
        ({"n": "3"}, "n: '3' is not of type 'integer'"),
        ({"n": 3, "names": ["a", 1]}, "names.1: 1 is not of type 'string'"),
        ({"n": 3, "x": 1}, "Additional properties are not allowed ('x' was unexpected)"),
        ({"n": 3, "ratio": 10**400}, "the arguments have a number that is too large"),
    ],
)
async def test_arguments_are_checked(members: dict[str, Any], problem: str | None) -> None:
    schema = OBJECT | {
        "properties": {
            "n": {"type": "integer"},
            "names": {"type": "array", "items": {"type": "string"}},
            "ratio": {"multipleOf": 0.5},
        },
        "required": ["n"],
        "additionalProperties": False,
    }
    check_input_schema(schema)
    assert input_problem(schema, members) == problem


@each(
    ("keywords", "value"),
    [
        ({"items": {"allOf": [{"type": "integer"}] * 600}}, [1] * 50_000),
        ({"items": {"enum": [*range(1500), -1]}}, [-1] * 50_000),
        ({"allOf": [{"items": {}}] * 600}, [1] * 50_000),
        ({"allOf": [{"propertyNames": {}}] * 600}, {str(n): n for n in range(50_000)}),
        ({"items": {"properties": {str(n): {} for n in range(500)}}}, [{}] * 50_000),
    ],
)
async def test_a_check_ends_early(keywords: dict[str, Any], value: object) -> None:
    schema = OBJECT | {"properties": {"a": keywords}}
    check_input_schema(schema)
    began = time.process_time()
    assert "too large" in str(input_problem(schema, {"a": value}))
    assert time.process_time() - began < 5


@given(st.dictionaries(st.text(), ANY_JSON), st.dictionaries(st.text(), ANY_JSON))
def test_whatever_is_sent_is_answered(schema: dict[str, Any], members: dict[str, Any]) -> None:
    wanted = {**OBJECT, "properties": {"a": schema}}
    try:
        check_input_schema(wanted)
    except UnusableSchemaError:
        return
    assert isinstance(input_problem(wanted, members), str | None)
