"""Globs: minimatch's rules without dotfiles, within bounds whatever the pattern is."""

import re
import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.globs import (
    MOST_CHARACTERS,
    MOST_CLASSES,
    MOST_EXPANDED,
    MOST_PATTERNS,
    GlobError,
    Globs,
)


def matches(pattern: str, ref: str) -> bool:
    return Globs([pattern]).match(ref)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("**/*", "README.md a/b a/b/c.py", ".env .git/config a/.git/x"),
        ("src/**/*", "src/a.py src/x/y.py", "srcx/a src a/src/b src/.x"),
        ("**", "a a/b", ".a a/.b"),
        ("a/**", "a/b a/b/c", "a b/a a/.b"),
        ("a/**/b", "a/b a/x/b a/x/y/b", "ab a/xb a/.x/b"),
        ("**/b", "b a/b", "ab .a/b"),
        ("a/**/**", "a/b a/b/c", "a"),
        ("*/**/c", "a/c a/b/c", "c .a/c"),
        ("*.py", "a.py b.c.py", "a/b.py .py a.pyc"),
        ("**/*.py", "a.py x/a.py", ".py x/.py"),
        ("a**b", "ab axb", "a/b"),
        ("*", "a -", ".a a/b"),
        (".*", ".env .a", "a .a/b"),
        ("**/.env", ".env a/.env", "env a/.envy"),
        ("?", "a -", ". ab"),
        ("a?c", "abc a.c", "a/c ac"),
        ("[a-c]x", "ax cx", "dx -x"),
        ("[!a-c]x", "dx -x", "ax .x"),
        ("[^a]", "b", "a ."),
        ("a[.]b", "a.b", "axb"),
        ("[.]a", "-", ".a"),
        ("[a-]", "a -", "b"),
        (r"[\]]", "]", "\\"),
        (r"\*", "*", "a \\*"),
        (r"\{a,b\}", "{a,b}", "a"),
        (r"\!a", "!a", "a"),
        ("{a,b}/c", "a/c b/c", "ab/c"),
        ("{src,test}/**/*", "src/a test/b/c", "lib/a"),
        ("a{,b,{c,d}e}", "a ab ace ade", "ac ae"),
        ("{a/b,c}/d", "a/b/d c/d", "a/d"),
        ("{**/x,y}", "x a/x y", "a/y"),
        ("a+b", "a+b", "aab"),
        ("a.b", "a.b", "axb"),
        ("A", "A", "a"),
    ],
)
def test_a_pattern(pattern: str, matching: str, others: str) -> None:
    globs = Globs([pattern])
    for ref in matching.split() if matching != "-" else ():
        assert globs.match(ref), ref
    for ref in others.split():
        assert not globs.match(ref), ref


@pytest.mark.parametrize(
    "ref",
    ["", "/a", "a/", "a//b", ".", "..", "../a", "src/../etc/x", "a/..", "./a", "a/./b", "a\0b"],
)
def test_a_path_that_is_no_plain_one_matches_nothing(ref: str) -> None:
    assert not Globs(["**/*", "**", "*", ".*", "src/**/*", "a*b", ".*/*", "**/.*"]).match(ref)


def test_what_no_encoding_has_is_matched_all_the_same() -> None:
    assert matches("*", "\udcff\n")
    assert matches("a\udcff*", "a\udcffb")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("", "1 to 1024 characters"),
        ("x" * (MOST_CHARACTERS + 1), "1 to 1024 characters"),
        ("/a", "must be relative"),
        ("a//b", "must be relative"),
        ("a/", "must be relative"),
        ("a/../b", "must be relative"),
        ("./a", "must be relative"),
        ("{a,../b}", "must be relative"),
        ("a\0", "must be relative"),
        ("[a", r"has a \[ without its \]"),
        ("[a/b]", r"has a \[ without its \]"),
        ("[]", "empty class"),
        ("[!]", "empty class"),
        ("[b-a]", "wrong order: b-a"),
        ("[[:alpha:]]", r"has a \[ in a class"),
        ("{a,b", "has a {"),
        ("a}", "has a }"),
        ("{a}", "need a comma"),
        ("{1..3}", "need a comma"),
        ("!a", "must not begin with !"),
        ("#a", "must not begin with #"),
        ("{!a,b}", "must not begin with !"),
        ("+(a|b)", "extended globs"),
        ("a\\", "without a character after it"),
        ("{a,b}" * 20, f"more than {MOST_EXPANDED} characters"),
        ("{,}" * 300, f"more than {MOST_EXPANDED} characters"),
    ],
)
def test_a_malformed_pattern_is_named(pattern: str, said: str) -> None:
    with pytest.raises(GlobError, match=said) as caught:
        Globs(["fine", pattern])
    assert caught.value.index == 1


def test_a_list_is_bounded() -> None:
    with pytest.raises(GlobError, match=f"at most {MOST_PATTERNS} patterns") as caught:
        Globs(["a"] * (MOST_PATTERNS + 1))
    assert caught.value.index is None
    with pytest.raises(GlobError, match=f"more than {MOST_EXPANDED} characters") as caught:
        Globs(["x" * MOST_CHARACTERS] * 17)
    assert caught.value.index == 16
    with pytest.raises(GlobError, match=f"at most {MOST_CLASSES} different classes"):
        Globs([f"[a-{chr(200 + n)}]" for n in range(MOST_CLASSES + 1)])
    assert Globs(["x" * MOST_CHARACTERS] * 16).match("x" * MOST_CHARACTERS)


def test_a_directory_leads_to_what_may_match_below_it() -> None:
    globs = Globs(["docs/a.md", "**/.github/*"])
    assert all(map(globs.leads, (".", "docs", "lib", ".github", "x/.github")))
    narrow = Globs(["src/**/*.py", "docs/a.md"])
    assert [d for d in (".", "src", "src/x/y", "docs") if not narrow.leads(d)] == []
    others = ("lib", "docs/a.md", "docs/x", "srcx", ".git", "src/.git", "..", "/", "src/..", "")
    assert [d for d in others if narrow.leads(d)] == []
    assert not Globs([]).leads(".")


def test_the_number_of_steps_is_that_of_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    plain = Globs._passed_stars

    def counted(self: Globs, states: int) -> int:
        taken.append(states.bit_length())
        return plain(self, states)

    monkeypatch.setattr(Globs, "_passed_stars", counted)
    for pattern in ("*a" * 500 + "b", "**/" * 300 + "b", "?*" * 500 + "/b"):
        taken.clear()
        assert not matches(pattern, "a" * 4000)
        assert len(taken) <= 4001
        assert max(taken) <= MOST_CHARACTERS + 2


# What follows compares it with a matcher that tries everything, on a small alphabet.


def segments(pattern: str) -> str:
    """A regular expression for one segment."""
    words = {"*": "[^/]*", "?": "[^/]"}
    found = "".join(words.get(each, re.escape(each)) for each in pattern)
    return found if pattern.startswith(".") else rf"(?!\.){found}"


def tried(pattern: list[str], ref: list[str]) -> bool:
    if not pattern:
        return not ref
    if pattern[0] == "**":
        if ref and not ref[0].startswith(".") and tried(pattern, ref[1:]):
            return True
        if len(pattern) == 1:
            return len(ref) == 1 and not ref[0].startswith(".")
        return tried(pattern[1:], ref)
    return bool(ref) and bool(
        re.fullmatch(segments(pattern[0]), ref[0]) and tried(pattern[1:], ref[1:])
    )


SEGMENTS = st.text("ab.", min_size=1, max_size=3).filter(lambda each: each not in (".", ".."))
WILD = st.one_of(st.just("**"), st.text("ab.*?", min_size=1, max_size=4)).filter(
    lambda each: each not in (".", "..") and ("**" not in each or each == "**")
)


@given(st.lists(WILD, min_size=1, max_size=4), st.lists(SEGMENTS, min_size=1, max_size=4))
def test_it_is_what_trying_everything_finds(pattern: list[str], ref: list[str]) -> None:
    globs = Globs(["/".join(pattern)])
    assert globs.match("/".join(ref)) == tried(pattern, ref)
    if globs.match("/".join(ref)):
        for length in range(1, len(ref)):
            assert globs.leads("/".join(ref[:length]))


@given(st.lists(st.lists(WILD, min_size=1, max_size=3), max_size=4), st.lists(SEGMENTS, min_size=1))
def test_a_list_matches_what_one_of_it_does(patterns: list[list[str]], ref: list[str]) -> None:
    texts = ["/".join(pattern) for pattern in patterns]
    path = "/".join(ref)
    assert Globs(texts).match(path) == any(matches(text, path) for text in texts)


def braces(pattern: str) -> Iterator[str]:
    """All expansions, one group after the other."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        yield pattern
        return
    for option in found[1].split(","):
        yield from braces(pattern[: found.start()] + option + pattern[found.end() :])


@given(
    st.recursive(
        st.text("ab*", min_size=1, max_size=2),
        lambda inner: st.lists(inner, min_size=2, max_size=3).map(
            lambda options: "{" + ",".join(options) + "}x"
        ),
        max_leaves=6,
    ),
    st.text("abx", min_size=1, max_size=6),
)
def test_braces_are_the_list_of_their_options(pattern: str, ref: str) -> None:
    assert matches(pattern, ref) == Globs(braces(pattern)).match(ref)


@given(st.text(max_size=30), st.text(max_size=20))
def test_any_text_is_a_pattern_or_a_glob_error(pattern: str, ref: str) -> None:
    try:
        globs = Globs([pattern])
    except GlobError:
        return
    globs.match(ref)
    globs.leads(ref)


@given(st.text(string.ascii_letters + string.punctuation, min_size=1, max_size=20))
def test_an_escaped_text_matches_itself(text: str) -> None:
    segments = text.split("/")
    if {"", ".", ".."} & set(segments):
        return
    escaped = "/".join("".join(f"\\{each}" for each in segment) for segment in segments)
    assert matches(escaped, text)
    assert not matches(escaped, text + "x")
