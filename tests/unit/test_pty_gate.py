"""Lines that the agent itself refuses for a governed terminal, and how it holds output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.pty.gate import SANITIZERS, RefusedError, check
from sandbox_agent.pty.unread_output import MOST_BYTES, UnreadOutput
from tests.support.raised import raised

DECLARED = frozenset({"select"})


def test_a_declared_line_passes_as_it_is() -> None:
    text = "SELECT 'é' FROM (VALUES (1)) AS t"
    assert check("select", text, DECLARED, ["injection"], 100) == text.encode()


REFUSED = [
    ("drop", "x", "unknown-tool"),
    *(("select", f"a{chr(code)}b", "control-character") for code in (0, 3, 4, 9, 10, 13, 21, 22)),
    *(("select", f"a{chr(code)}b", "control-character") for code in (26, 27, 127, 128, 0x9B)),
    ("select", "a\ud800", "control-character"),
    *(
        ("select", f"a{sign}b", "input-sanitize")
        for sign in sorted(SANITIZERS["injection"] - set("\n\r"))
    ),
    ("select", "é" * 51, "too-long"),
]


def test_what_is_refused() -> None:
    for command, text, rule in REFUSED:
        refusal = raised(RefusedError, check, command, text, DECLARED, ["injection"], 100)
        assert refusal, (command, text)
        assert refusal.rule == rule, (command, text)


@given(st.text())
def test_no_control_character_passes(text: str) -> None:
    try:
        data = check("select", text, DECLARED, [], 10_000)
    except RefusedError:
        return
    assert data.decode() == text
    assert not any(byte < 0x20 or byte == 0x7F for byte in data)


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(1, 15)))
def test_everything_said_is_read_once_and_in_order(said: list[bytes], limits: list[int]) -> None:
    held, read = UnreadOutput(), b""
    for data in said:
        held.add(data)
        for limit in limits:
            piece = held.take(len(read), limit)
            assert held.take(len(read), limit) == piece  # repeatable after a lost answer
            read += piece
    while piece := held.take(len(read), 7):
        read += piece
    assert read == b"".join(said)
    assert (held.start, held.total) == (len(read), len(read))


def test_places_that_are_not_held_are_refused() -> None:
    held = UnreadOutput()
    held.add(b"abcdef")
    assert held.room == MOST_BYTES - 6
    assert held.take(4, 10) == b"ef"
    for place in (3, 7, -1):
        with pytest.raises(ValueError, match="between 4 and 6"):
            held.take(place, 1)
