"""Positions over several nodes: each has one text, and no other text is one."""

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.faces.positions import (
    MOST_CHARACTERS,
    MOST_NODES,
    Position,
    Positions,
    Series,
)
from orchestrator.ground.errors import ValidationError

EVENTS = Positions("lab", Series.EVENTS)
_names = st.from_regex(r"\A[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")
_numbers = st.integers(0, 2**64 - 1)
_positions = st.builds(Position, st.dictionaries(_names, _numbers, max_size=40), _numbers)


def _encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _decoded(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


@given(_positions)
def test_a_position_is_read_as_it_was_written(position: Position) -> None:
    text = EVENTS.write(position)
    assert EVENTS.read(text, "after") == position
    assert all(letter.isalnum() or letter in "-_" for letter in text)


def test_the_longest_position_fits() -> None:
    longest = {f"node-{number:04}": 10**9 for number in range(MOST_NODES)}
    text = EVENTS.write(Position(longest, 10**15))
    assert len(text) <= MOST_CHARACTERS
    assert EVENTS.read(text, "after").of_nodes == longest


@given(_positions, st.data())
def test_a_changed_text_is_refused_or_is_another_position(
    position: Position, data: st.DataObject
) -> None:
    """Whatever is cut, added or replaced: no two texts are one position."""
    text = EVENTS.write(position)
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, len(text)))
    changed = text[:at] + data.draw(st.text(max_size=8)) + text[end:]
    with suppress(ValidationError):
        read = EVENTS.read(changed, "after")
        assert (read == position) == (changed == text)


@given(st.text() | st.binary().map(_encoded))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="after is not a position") as refused:
        EVENTS.read(text, "after")
    assert refused.value.fields == {"field": "after"}


_TAG = _decoded(EVENTS.write(Position())).split(" ")[1]


@pytest.mark.parametrize(
    "written",
    [
        "",
        f"events {_TAG}",
        f"events {_TAG} 0 a:1 a:2",
        f"events {_TAG} 0 a:1 a:1",
        f"events {_TAG} 0 b:1 a:1",
        f"events {_TAG} 0 a:01",
        f"events {_TAG} 00 a:1",
        f"events {_TAG} 0  a:1",
        f"events {_TAG} 0 a:1 ",
        f"events {_TAG} 0 a:1\n",
        f"events {_TAG} 0 a:-1",
        f"events {_TAG} 0 a:\u0661",
        f"events {_TAG} 0 a:{2**64}",
        f"events {_TAG} {2**64}",
        f"events {_TAG} 0 -a:1",
        f"events {_TAG} 0 a/b:1",
        f"events {_TAG} 0 {'a' * 65}:1",
        f"events {_TAG} 0" + "".join(f" {number:04}:1" for number in range(MOST_NODES + 1)),
        f"search {_TAG} 0 a:1",
        "events 00000000 0 a:1",
    ],
)
def test_what_was_never_written_is_refused(written: str) -> None:
    with pytest.raises(ValidationError):
        EVENTS.read(_encoded(written.encode()), "after")


def test_positions_of_other_lists_and_clusters_are_refused() -> None:
    position = Position({"a": 1})
    for other in (Positions("lab", Series.SEARCH), Positions("other", Series.EVENTS)):
        with pytest.raises(ValidationError):
            EVENTS.read(other.write(position), "after")


def test_padding_and_spare_bits_are_refused() -> None:
    """Base64 has several texts for the same bytes."""
    text = EVENTS.write(Position({"a": 1}))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    spare = letters[letters.index(text[-1]) ^ 1]
    others = [text + "=", text + "\n", f" {text}", text[:-1] + spare]
    for other in others:
        with suppress(ValidationError):
            assert EVENTS.read(other, "after") != Position({"a": 1})


@pytest.mark.parametrize("text", ["A" * (MOST_CHARACTERS + 1), "A" * 10_000_000])
def test_long_texts_are_refused_without_being_read(text: str) -> None:
    with pytest.raises(ValidationError):
        EVENTS.read(text, "after")
