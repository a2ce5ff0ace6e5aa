"""Regular expressions of searches: they find what Python's find, in linear time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.files.pattern_parser import PatternError, literal
from sandbox_agent.decide.files.patterns import Pattern

ATOMS = st.sampled_from(
    ["a", "b", "B", "é", ".", "[ab]", "[^a]", "[a-c_]", r"\w", r"\W", r"\d", r"\s", r"\.", "-"]
)
EDGES = st.sampled_from(["^", "$", r"\b", r"\B"])
REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}", "*?", "+?"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda both: f"({both[0]}|{both[1]})")
        | st.tuples(inner, REPEATS).map(lambda both: f"(?:{both[0]}){both[1]}")
        | st.tuples(EDGES, inner).map("".join)
        | st.tuples(inner, EDGES).map("".join)
    ),
    max_leaves=8,
)
TEXTS = st.lists(st.text(alphabet="abBcé_ .-1", min_size=1, max_size=10), min_size=1, max_size=5)


@given(PATTERNS, TEXTS, st.booleans())
def test_it_finds_what_python_finds(pattern: str, texts: list[str], ignore_case: bool) -> None:
    ours = Pattern(pattern, ignore_case=ignore_case)
    theirs = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    for text in texts:
        assert ours.found_in(text) == bool(theirs.search(text)), (pattern, text)


@given(st.text(min_size=1, max_size=20))
def test_a_literal_finds_itself(text: str) -> None:
    assert Pattern(literal(text)).found_in(f"x{text}y")


@given(st.text(alphabet="ab()[]{}|*+?^$\\-,1.", min_size=1, max_size=30))
def test_any_text_is_a_pattern_or_an_error(text: str) -> None:
    try:
        Pattern(text).found_in("ab1")
    except PatternError:
        return


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*b", "(a|a)*b", "(a|aa)+$", "a*a*a*a*a*b", "(.*)*x", "(x+x+)+y", "[ab]*a[ab]{60}c"],
)
def test_hostile_patterns_end(pattern: str) -> None:
    """Each of these takes longer than a life where it is tried by backtracking."""
    assert not Pattern(pattern).found_in("a" * 3000 + "!")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "must have 1"),
        ("a" * 1025, "must have 1"),
        ("(", "without its"),
        (")", "without its"),
        ("[a", "without its"),
        ("*a", "nothing before"),
        ("a**", "repeats a repetition"),
        ("a{1001}", "counts"),
        ("(a{1000}){1000}", "too many states"),
        (r"(a)\1", "not supported"),
        ("(?=a)", "only"),
        ("(?P<n>a)", "only"),
        ("^*", "no characters"),
        ("[b-a]", "wrong order"),
        ("a\\", "ends with"),
        ("(" * 70 + ")" * 70, "deep"),
    ],
)
def test_what_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        Pattern(pattern)
