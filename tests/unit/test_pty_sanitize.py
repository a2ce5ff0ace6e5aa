"""Characters that no line may contain, whatever its pattern allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.sanitize import (
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


def test_control_characters_are_refused() -> None:
    for code in [*range(0x20), *range(0x7F, 0xA0), 0x605, 0x2028, 0x2029, 0xFFF9, 0xD800]:
        reason = control_characters(f"ab{chr(code)}")
        assert reason == f"character 3 is the control character U+{code:04X}", code


# Unicode's Default_Ignorable_Code_Point: first and last code point of each range.
INVISIBLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip


@pytest.mark.parametrize(("first", "last"), INVISIBLE)
def test_invisible_characters_are_refused(first: int, last: int) -> None:
    for code in range(first, last + 1):
        reason = control_characters(f"DROP TABLE a{chr(code)}b")
        assert reason == f"character 13 is the invisible character U+{code:04X}"
    for code in (first - 1, last + 1):  # neighbours are in another range, or pass, or are controls
        reason = control_characters(chr(code))
        known = any(start <= code <= end for start, end in INVISIBLE)
        assert known or reason is None or "control character" in reason


def test_other_text_passes() -> None:
    for text in ("SELECT 'naïve — ☃ 漢字 🎉'", "", "a b", "\u01db"):
        assert control_characters(text) is None


@given(st.text())
def test_what_passes_can_be_shown(text: str) -> None:
    """Nothing passes that controls a terminal, or that hides from the approver."""
    if control_characters(text) is None:
        text.encode()
        assert not any(char < " " or "\x7f" <= char <= "\x9f" for char in text)
        assert len(text.splitlines()) <= 1


@given(st.text())
def test_injection_names_what_it_found(text: str) -> None:
    found = set(text) & INJECTION
    assert (injection(text, INJECTION) is None) == (not found)
