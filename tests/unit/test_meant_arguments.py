"""Arguments of tools as models write them: each row is what is given, and what is meant."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.contract.tool_arguments import meant

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"Mode": {"enum": ["a", "b"]}},
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "all": {"type": "boolean"},
        "counts": {"type": "array", "items": {"type": "integer"}},
        "argv": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "env": {"type": "object"},
        "either": {"type": ["string", "integer"]},
        "empty": {"type": ["integer", "null"]},
        "mode": {"$ref": "#/$defs/Mode"},
        "any": {},
    },
    "required": ["path"],
}
ROWS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"count": None, "all": None, "mode": None}, {}),
    ({"count": "null", "all": "None"}, {}),
    ({"empty": None, "argv": None}, {"empty": None, "argv": None}),
    ({"path": None}, {"path": None}),
    ({"count": "20", "share": "0.5"}, {"count": 20, "share": 0.5}),
    ({"count": " 20 ", "share": "1"}, {"count": 20, "share": 1}),
    ({"count": 20.0, "share": 20.0}, {"count": 20, "share": 20.0}),
    ({"count": "20.0"}, {"count": 20}),
    ({"all": "true"}, {"all": True}),
    ({"all": "False"}, {"all": False}),
    ({"argv": '["ls", "-l"]'}, {"argv": ["ls", "-l"]}),
    ({"env": '{"A": "b"}'}, {"env": {"A": "b"}}),
    ({"counts": ["1", "2"]}, {"counts": [1, 2]}),
    ({"path": "5", "either": "5"}, {"path": "5", "either": "5"}),
    ({"either": 5, "any": "5"}, {"either": 5, "any": "5"}),
]
# What is not clear stays as it is, so the check says what is wrong.
UNCLEAR: list[dict[str, Any]] = [
    {"count": "many"},
    {"count": "1.5"},
    {"count": 1.5},
    {"count": "[1]"},
    {"count": True},
    {"argv": "ls -l"},
    {"argv": '{"a": 1}'},
    {"argv": [["ls"]]},
    {"all": "yes"},
    {"all": 1},
    {"path": True},
    {"path": 5},
    {"argv": ["head", "-n", 5]},
    {"path": ["a"]},
    {"env": "[" * 100_000},
    {"unknown": None},
]


@pytest.mark.parametrize(("written", "expected"), ROWS)
def test_what_is_meant(written: dict[str, Any], expected: dict[str, Any]) -> None:
    found = meant(SCHEMA, written)
    assert found == expected
    assert [*map(type, found.values())] == [*map(type, expected.values())]


@pytest.mark.parametrize("written", UNCLEAR, ids=str)
def test_what_is_not_clear_stays(written: dict[str, Any]) -> None:
    assert meant(SCHEMA, written) == written


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "unknown"]), _JSON))
def test_what_was_made_of_it_stays(written: dict[str, Any]) -> None:
    found = meant(SCHEMA, written)
    assert meant(SCHEMA, found) == found


@pytest.mark.slow
@given(st.dictionaries(st.text(), _JSON), st.dictionaries(st.text(), _JSON))
def test_any_schema_does(written: dict[str, Any], schema: dict[str, Any]) -> None:
    meant({"properties": schema, "required": []}, written)
