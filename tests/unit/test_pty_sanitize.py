"""What no line may hold, whatever its pattern says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.pty.sanitize import (
    INJECTION,
    LINE_INJECTION,
    control_characters,
    injection,
)


@pytest.mark.parametrize("char", sorted(INJECTION))
def test_injection_in_arguments_is_the_full_set(char: str) -> None:
    assert injection(f"a{char}b", INJECTION) is not None


@pytest.mark.parametrize("char", sorted(INJECTION - set("()")))
def test_injection_in_lines_is_the_set_without_parentheses(char: str) -> None:
    assert injection(f"a{char}b") is not None


def test_the_documented_insert_passes() -> None:
    assert injection("INSERT INTO logs (msg) VALUES ('test')") is None
    assert INJECTION - {"(", ")"} == LINE_INJECTION


@pytest.mark.parametrize(
    "code", [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x200B, 0x202E, 0x2028, 0x2029, 0xFEFF, 0xD800]
)
def test_control_characters_are_refused(code: int) -> None:
    reason = control_characters(f"ab{chr(code)}")
    assert reason == f"character 3 is the control character U+{code:04X}"


def test_other_text_passes() -> None:
    for text in ("SELECT 'naïve — ☃ 漢字 🎉'", "", "a b", "\u01db"):
        assert control_characters(text) is None


@given(st.text())
def test_what_passes_can_be_shown(text: str) -> None:
    """Nothing that a terminal acts on, or that hides from who approves it, gets through."""
    if control_characters(text) is None:
        text.encode()
        assert not any(char < " " or "\x7f" <= char <= "\x9f" for char in text)
        assert len(text.splitlines()) <= 1


@given(st.text())
def test_injection_names_what_it_found(text: str) -> None:
    found = set(text) & INJECTION
    assert (injection(text, INJECTION) is None) == (not found)
