"""Rules about methods and paths: a path that can be read in several ways is allowed by none."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.egress.outgoing_request import (
    Glob,
    Outgoing,
    PathError,
    Requested,
    plain_path,
)
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import NOT_INSPECTED, NOT_LISTED, Rules

SEGMENT = st.from_regex(r"[a-zA-Z0-9_~é-]{1,8}", fullmatch=True)
PATH = st.lists(SEGMENT, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))

PYPI = Rules(
    allow=(
        Rule("pypi.org", None, (80, 443), ("GET", "HEAD"), (Glob("/simple/**"),), True),
        Rule("plain.org", None, (80, 443), ("GET",)),
        Rule("open.org", None, (80, 443)),
    ),
    deny=(
        Rule("pypi.org", paths=(Glob("/simple/evil/**"),)),
        Rule("open.org", None, (80,), ("DELETE",)),
    ),
)


def requested(request: str, *headers: tuple[bytes, bytes]) -> Requested:
    method, _, path = request.partition(" ")
    return Requested.of(method, path, headers)


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("/**", "/", True),
        ("/**", "/a/b.c", True),
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/", True),
        ("/a/*", "/a/b/c", False),
        ("/a/*/c", "/a/b/c", True),
        ("/a/*/c", "/a/b/b/c", False),
        ("/a/**/c", "/a/b/b/c", True),
        ("/a/**", "/a", False),
        ("/a.b", "/axb", False),
        ("/v*/x-*.whl", "/v1/x-1.whl", True),
        ("/(a|b)", "/a", False),
        ("/é", "/é", True),
        ("/A", "/a", False),
    ],
)
def test_stars_are_parts_of_a_segment_or_of_the_path(glob: str, path: str, matches: bool) -> None:
    assert Glob(glob).matches(path) == matches


def test_a_long_path_is_matched_at_once() -> None:
    glob = Glob("/" + "*a" * 60 + "/**b")
    assert not glob.matches("/" + "a" * 16_000)


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/", "/"),
        ("/a?b=/../c", "/a"),
        ("/%61/b", "/a/b"),
        ("/caf%C3%A9", "/café"),
        ("/a.b/...", "/a.b/..."),
        ("/100%25", "/100%"),
    ],
)
def test_a_path_is_compared_decoded_and_without_its_query(path: str, plain: str) -> None:
    assert plain_path(path) == plain


@pytest.mark.parametrize(
    "path",
    [
        *("/a/../b", "/a/./b", "/..", "/a/.", "/%2e%2e/b", "/a/%2E./b"),
        *("//a", "/a//b", "/a%2Fb", "/a%2fb", "/a\\b", "/a%5cb", "/%252e%252e/b", "/%252fa"),
        *("/a%00", "/a%0d%0a", "/a;b", "/..;/b", "/a%3Bb", "/%c0%af", "/%ff", "/%zz", "/a%"),
    ],
)
def test_a_path_that_two_programs_could_read_differently_has_no_spelling(path: str) -> None:
    with pytest.raises(PathError):
        plain_path(path)
    every = Rules((Rule("a.org", paths=(Glob("/**"),)),))
    decision = every.decide(Outgoing("a.org", 80, requested(f"GET {path}")))
    assert (decision.allow, decision.rule) == (False, NOT_LISTED)
    # Rules about no paths allow it, because they allow any.
    assert Rules((Rule("a.org"),)).decide(Outgoing("a.org", 80, requested(f"GET {path}"))).allow
    but = Rules((Rule("a.org"),), (Rule("a.org", paths=(Glob("/secret"),)),))
    assert not but.decide(Outgoing("a.org", 80, requested(f"GET {path}"))).allow


@pytest.mark.parametrize("name", [b"X-HTTP-Method-Override", b"x-original-url"])
def test_a_field_that_replaces_the_request_is_not_allowed_by_rules_about_it(name: bytes) -> None:
    replaced = requested("GET /simple/x", (name, b"x"))
    assert not PYPI.decide(Outgoing("pypi.org", 443, replaced)).allow
    assert PYPI.decide(Outgoing("open.org", 443, replaced)).allow
    assert not PYPI.decide(Outgoing("open.org", 80, replaced)).allow


@pytest.mark.parametrize("method", ["delete", "Delete", "dELETE"])
def test_a_method_in_other_letters_is_denied_like_the_method(method: str) -> None:
    written = requested(f"{method} /x")
    assert not PYPI.decide(Outgoing("open.org", 80, written)).allow
    assert PYPI.decide(Outgoing("open.org", 443, written)).allow
    only = Rules((Rule("a.org", methods=("DELETE",)),))
    decision = only.decide(Outgoing("a.org", 80, written))
    assert not decision.allow
    assert "not in capitals" in str(decision.why)


@pytest.mark.parametrize(
    ("host", "port", "request_", "rule"),
    [
        ("pypi.org", 443, "GET /simple/x/", "allow pypi.org:80,443 GET,HEAD /simple/**"),
        ("pypi.org", 443, "HEAD /simple/", "allow pypi.org:80,443 GET,HEAD /simple/**"),
        ("pypi.org", 443, "POST /simple/", NOT_LISTED),
        ("pypi.org", 443, "GET /legacy/", NOT_LISTED),
        ("pypi.org", 443, "GET /simple/evil/x", "deny pypi.org /simple/evil/**"),
        ("plain.org", 80, "GET /x", "allow plain.org:80,443 GET"),
        ("plain.org", 80, "get /x", NOT_LISTED),
        ("open.org", 80, "DELETE /x", "deny open.org:80 DELETE"),
        ("open.org", 443, "DELETE /x", "allow open.org:80,443"),
    ],
)
def test_a_request_is_decided_by_method_and_path(
    host: str, port: int, request_: str, rule: str
) -> None:
    decision = PYPI.decide(Outgoing(host, port, requested(request_)))
    assert (decision.rule, decision.allow) == (rule, rule.startswith("allow "))
    assert (decision.remedy is None) == decision.allow


@pytest.mark.parametrize(
    ("host", "port", "allow", "inspect", "rule"),
    [
        ("pypi.org", 443, True, True, "allow pypi.org:80,443 GET,HEAD /simple/**"),
        ("plain.org", 443, False, False, NOT_INSPECTED),
        ("open.org", 443, True, False, "allow open.org:80,443"),
        ("open.org", 80, False, False, "deny open.org:80 DELETE"),
        ("other.org", 443, False, False, NOT_LISTED),
    ],
)
def test_a_tunnel_is_decided_as_a_whole(
    host: str, port: int, allow: bool, inspect: bool, rule: str
) -> None:
    decision = PYPI.decide(Outgoing(host, port))
    assert (decision.allow, decision.inspect, decision.rule) == (allow, inspect, rule)


def test_one_rule_that_inspects_has_all_tunnels_to_its_hosts_read() -> None:
    rules = Rules((Rule("*.a.org"), Rule("x.a.org", methods=("GET",), inspect=True)))
    assert rules.decide(Outgoing("x.a.org", 443)).inspect
    assert not rules.decide(Outgoing("y.a.org", 443)).inspect
    denying = Rules((Rule("a.org"),), (Rule("a.org", methods=("PUT",), inspect=True),))
    assert denying.decide(Outgoing("a.org", 443)).inspect
    assert not denying.decide(Outgoing("a.org", 443, requested("PUT /"))).allow


def test_the_remedy_names_method_and_path() -> None:
    decision = PYPI.decide(Outgoing("pypi.org", 443, requested("POST /a%22b?token=x")))
    assert decision.why == 'no rule allows POST /a"b at pypi.org, port 443'
    assert 'methods = ["POST"] and paths = ["/a\\"b"]' in str(decision.remedy)
    assert "token" not in f"{decision.why}{decision.remedy}"


def test_an_explanation_counts_what_plain_http_may_request() -> None:
    assert PYPI.decide_any_port("plain.org").allow


@given(PATH, PATH)
def test_a_path_is_the_same_however_it_is_escaped(path: str, other: str) -> None:
    escaped = "/".join(
        "".join(f"%{byte:02x}" for byte in part.encode()) for part in path.split("/")
    )
    assert plain_path(escaped) == plain_path(quote(path)) == path
    assert Glob(path).matches(plain_path(escaped))
    assert Glob(path).matches(other) == (path == other)
    assert Glob(f"{path}/**").matches(f"{path}{other}")


@given(st.text(max_size=40), st.sampled_from(["GET", "POST"]))
def test_what_has_a_spelling_stays_below_its_directory(text: str, method: str) -> None:
    raw = quote(text, safe="/%.;?\\")
    decision = Rules((Rule("a.org", paths=(Glob("/in/**"),)),)).decide(
        Outgoing("a.org", 80, Requested.of(method, f"/in/{raw}"))
    )
    if decision.allow:
        assert ".." not in plain_path(f"/in/{raw}").split("/")
