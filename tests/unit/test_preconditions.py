"""The headers about versions and parts of files, and what they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.shape.preconditions import conditions, wanted_range
from orchestrator.ground.errors import ValidationError
from sandbox_agent.decide.files import ranges


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-3", (0, 3)),
        ("bytes=5-", (5, None)),
        ("bytes=-5", (None, 5)),
        ("bytes= 1 - 2 ", (1, 2)),
        ("bytes=3-1", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("lines=0-1", None),
        ("bytes=\u0660-1", None),
        ("", None),
    ],
)
def test_ranges(header: str, wanted: object) -> None:
    assert wanted_range({"Range": header}) == wanted
    assert wanted_range({"Range": header, "If-Range": '"a"'}) is None


@given(st.integers(0, 20), st.none() | st.integers(0, 25), st.none() | st.integers(0, 25))
def test_a_part_is_in_the_file(size: int, first: int | None, last: int | None) -> None:
    found = ranges.part(size, first, last)
    if found is not None:
        start, length = found
        assert 0 <= start < start + length <= size
        assert first is None or start == first


def test_entity_tags() -> None:
    assert conditions({}) == (None, None)
    assert conditions({"If-Match": "*"}) == (("*",), None)
    assert conditions({"If-Match": '"a", W/"b","c"'}).match == ("a", "c")
    assert conditions({"If-None-Match": 'W/"b"'}).none_match == ("b",)
    for wrong in ("a", '"a', '"a" "b"', "", '"' + "a" * 200 + '"', '"a",' * 1000):
        with pytest.raises(ValidationError, match="If-Match"):
            conditions({"If-Match": wrong})


def test_what_meets_conditions() -> None:
    assert ranges.meets("a", None, None)
    assert ranges.meets("a", ("a", "b"), None)
    assert ranges.meets("a", ("*",), None)
    assert not ranges.meets("a", ("b",), None)
    assert not ranges.meets(None, ("*",), None)
    assert not ranges.meets("a", None, ("*",))
    assert not ranges.meets("a", None, ("a",))
    assert ranges.meets(None, None, ("*",))
