"""Patterns: whole text, case-sensitive, one line, linear time."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.tools.patterns import MAX_PATTERN, PatternError, compile_pattern


def test_it_matches_the_whole_text_only() -> None:
    pattern = compile_pattern("^SELECT .+$")
    assert pattern.matches("SELECT 1")
    assert not pattern.matches("SELECT 1\n")
    assert not pattern.matches("SELECT 1\nDROP TABLE x")
    assert not pattern.matches("select 1")
    assert not pattern.matches(" SELECT 1")
    assert not compile_pattern("SELECT").matches("SELECT 1")
    assert not compile_pattern("^a$").matches("b\na")


def test_alternatives_are_anchored_as_a_whole() -> None:
    pattern = compile_pattern("^GET|SET$")
    assert pattern.matches("GET")
    assert not pattern.matches("GET; FLUSHALL")
    assert not pattern.matches("FLUSHALL SET")


def test_time_is_linear() -> None:
    """A backtracking engine would need longer than the universe has existed."""
    assert not compile_pattern("^(a+)+$").matches("a" * 8000 + "!")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(?=a)b", "look-around is not supported: patterns run on RE2"),
        ("(?!a)b", "look-around"),
        ("(?<=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "backreferences are not supported: patterns run on RE2"),
        ("(?P<n>a)(?P=n)", "backreferences"),
        ("(?i)a", "inline flags"),
        ("(?m)^a$", "inline flags"),
        ("a(?s:.)", "inline flags"),
        ("(?:(?s).)", "inline flags"),
        (r"(?:[(?=](?i)x)", "inline flags"),
        (r"\Ca", r"\C"),
        (r"\Qa\E", r"\C, \Q"),
        ("(?>a)", "does not compile"),
        ("(", "does not compile: missing )"),
        ("a{1001}", "at most 1000 repetitions"),
        ("(?P<x>a)(?P<x>b)", "same name"),
        ("", "must have 1 to"),
        ("a" * (MAX_PATTERN + 1), "must have 1 to"),
        ("\ud800", "UTF-8"),
    ],
)
def test_what_can_not_be_used_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", [r"[(?i)]+", r"\(?i", r"[]a(?=]+", r"[[:alpha:](?=]+", r"\\1"])
def test_what_only_looks_like_it_is_taken(text: str) -> None:
    compile_pattern(text)


def test_groups() -> None:
    match = compile_pattern(r"set (?P<target>\S+)( x)?").fullmatch("set \u00e9")
    assert match is not None
    assert match.groups == ("\u00e9", None)
    assert match.named == {"target": "\u00e9"}


@given(st.text())
def test_no_text_can_break_it(text: str) -> None:
    assert compile_pattern("(?P<all>.*)").matches(text) == (
        "\n" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
    )


@given(st.text())
def test_no_pattern_can_break_it(text: str) -> None:
    with suppress(PatternError):
        compile_pattern(text).matches("anything")
