"""Typed arguments: fifteen types, and what each refuses."""

import ipaddress
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.tools.arguments import CHECKS, Argument
from orchestrator.rules.tools.patterns import compile_pattern
from orchestrator.rules.tools.scope import NO_SCOPE, Scope
from orchestrator.rules.tools.tables import ArgumentType
from sandbox_agent.decide.sanitize import INJECTION

SCOPE = Scope(networks=(ipaddress.ip_network("10.0.0.0/8"),))


def check(kind: str, value: str | None, **members: Any) -> bool:
    return Argument("x", kind, **members).refusal(value, SCOPE) is None


def test_every_type_has_its_check() -> None:
    assert set(get_args(ArgumentType)) == CHECKS.keys()
    assert len(CHECKS) == 15


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["a b", "naïve"], []),
        ("integer", ["0", "-7", "+5"], ["", "1.0", "1_000", "0x1", "٣", " 1", "1e3"]),
        ("number", ["1", "-1.5", ".5", "1e3"], ["nan", "inf", "-Infinity", "1e999", "1,5", "1_0"]),
        ("port", ["1", "65535", "0080"], ["0", "65536", "-1", "+80", "80.0", "http"]),
        ("boolean", ["true", "false"], ["1", "yes", "on", "True", "FALSE"]),
        ("scope_target", ["10.1.2.3", "10.0.0.0/9"], ["11.0.0.1", "example.com"]),
        ("url", ["http://a/b", "gopher://a"], ["a", "//a/b", "http:///x", "http://a b/"]),
        ("path", ["a", "a/b.txt", "..."], ["/etc/passwd", "..", "a/../../b", "a\\..\\b", "C:x"]),
        ("credential_file", ["keys/id"], ["/etc/shadow", "../id", "~/.ssh/id"]),
        ("ip_address", ["10.0.0.1", "::1"], ["10.0.0.0/8", "10.0.1", "010.0.0.1", "a"]),
        ("cidr", ["10.0.0.0/8", "::/0", "10.1.1.1/8"], ["10.0.0.1", "10.0.0.0/255.0.0.0", "x/8"]),
        ("msf_options", ["RHOSTS 10.0.0.1", "A 1; B_2 x y;"], ["rhosts x", "A", "A 1; b 2", "A |"]),
        (
            "duration",
            ["30", "1h30m", "500ms", "1h2m3s4ms"],
            ["m", "5x", "30m1h", "-1", "1.5s"],
        ),
    ],
)
def test_types(kind: str, good: list[str], bad: list[str]) -> None:
    assert [value for value in good if not check(kind, value)] == []
    assert [value for value in bad if check(kind, value)] == []


@pytest.mark.parametrize("kind", ["integer", "number", "port"])
def test_bounds_reject(kind: str) -> None:
    assert check(kind, "5", min=5, max=5)
    assert not check(kind, "4", min=5)
    assert not check(kind, "6", max=5)


def test_types_that_need_more() -> None:
    assert check("enum", "a", allowed=("a", "b"))
    assert not check("enum", "A", allowed=("a", "b"))
    assert check("url", "https://a", schemes=("https",))
    assert not check("url", "http://a", schemes=("https",))
    for kind in ("string", "regex_match"):
        assert check(kind, "abc", pattern=compile_pattern("[a-c]+"))
        assert not check(kind, "abcd", pattern=compile_pattern("[a-c]+"))


def test_what_is_missing() -> None:
    assert not check("string", None)
    assert not check("string", "")
    assert check("string", None, required=False)


def test_no_value_has_what_shells_act_on() -> None:
    for kind in sorted(CHECKS.keys() - {"msf_options"}):
        for char in sorted(INJECTION):
            assert not check(
                kind, f"1{char}", allowed=(f"1{char}",), pattern=compile_pattern("[^a]*")
            ), (kind, char)


def test_targets_need_a_scope() -> None:
    reason = Argument("x", "scope_target").refusal("10.0.0.1", NO_SCOPE)
    assert reason == "x: no scope file is configured, so no target is in scope"


@given(st.sampled_from(sorted(CHECKS)), st.text())
def test_no_text_can_break_it(kind: str, text: str) -> None:
    argument = Argument("x", kind, pattern=compile_pattern(".*"))
    argument.refusal(text, SCOPE)
