"""Ids and paths of workspaces."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import ValidationError
from orchestrator.host.workspace.paths import (
    encode_id,
    slot_path,
    validate_id,
    visible_path,
)


@pytest.mark.parametrize("good", ["a", "A-1_b.c", "9", "x" * 128, "a..b", "con"])
def test_good_ids_name_themselves(good: str) -> None:
    assert validate_id(good) == good
    assert visible_path(Path("/root"), good) == Path("/root") / good


@pytest.mark.parametrize(
    "bad",
    ["", ".", "..", ".a", "-a", "_a", "a/b", "a\\b", "a b", "a\n", "\na", "é", "x" * 129, "%2e"],
)
def test_bad_ids_are_refused_by_name(bad: str) -> None:
    with pytest.raises(ValidationError) as caught:
        encode_id(bad)
    assert caught.value.fields == {"field": "id"}


@given(st.text(max_size=200))
def test_an_id_never_leaves_the_root(text: str) -> None:
    try:
        path = visible_path(Path("/root"), text)
    except ValidationError:
        return
    assert path.parent == Path("/root")
    assert path.name not in ("", ".", "..")
    assert len(path.name.encode()) <= 255


def test_slots_have_names_of_our_own() -> None:
    slot = "0123456789abcdef"
    assert slot_path(Path("/s"), slot) == Path("/s/slots") / slot
    for bad in ("", "..", "0123456789ABCDEF", "0123456789abcde/", slot + "\n"):
        with pytest.raises(ValueError, match="slot"):
            slot_path(Path("/s"), bad)
