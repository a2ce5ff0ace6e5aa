"""Scope files: targets in scope, and every spelling of targets that are not."""

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.scope import NO_SCOPE, Scope, TargetError, load_scope, parse_target
from tests.support.raised import raised

FILE = """
[scope]
targets = ["10.0.1.0/24", "192.0.2.7", "2001:db8::/32", "172.16.0.0/12"]
domains = ["example.com", "*.example.org", "*.Test.Example.net"]
exclude = ["10.0.1.13", "172.16.5.0/24", "secret.example.org", "*.internal.example.org"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "scope.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def scope(path: Path) -> Scope:
    return load_scope(path)


@pytest.mark.parametrize(
    "target",
    [
        "10.0.1.1",
        "10.0.1.128/25",
        "192.0.2.7",
        "192.0.2.7/32",
        "::ffff:10.0.1.1",
        "2001:db8::1",
        "2001:DB8::/64",
        "example.com",
        "EXAMPLE.com",
        "example.com.",
        "a.example.org",
        "deep.sub.example.org",
        "x.test.example.net",
    ],
)
def test_in_scope(scope: Scope, target: str) -> None:
    assert scope.refusal(target) is None


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("10.0.2.1", "not in scope"),
        ("10.0.1.0/8", "10.0.0.0/8 is excluded by 10.0.1.13/32"),
        ("10.0.1.0/24", "excluded"),  # contains an excluded address
        ("10.0.1.13", "excluded"),
        ("::ffff:10.0.1.13", "excluded"),
        ("::ffff:a00:10d", "excluded"),
        ("::/0", "excluded"),
        ("172.16.0.0/12", "excluded"),
        ("172.16.5.128/25", "excluded"),
        ("192.0.2.0/24", "not in scope"),
        ("0.0.0.0/0", "excluded"),
        ("2001:db9::1", "not in scope"),
        ("example.org", "not in scope"),  # *. matches only subdomains
        ("evil-example.org", "not in scope"),
        ("evilexample.com", "not in scope"),
        ("example.com.evil.net", "not in scope"),
        ("sub.example.com", "not in scope"),
        ("secret.example.org", "excluded"),
        ("SECRET.example.org.", "excluded"),
        ("x.internal.example.org", "excluded"),
    ],
)
def test_out_of_scope(scope: Scope, target: str, reason: str) -> None:
    refusal = scope.refusal(target)
    assert refusal is not None
    assert reason in refusal


NO_TARGETS = [
    "",
    " 10.0.1.1",
    "10.0.1.1 ",
    "10.0.1.1 10.0.1.2",
    "a" * 254,
    *(f"example.com{char}" for char in ";|&$`(){}[]<>!\n\r*?\\"),
    "*.example.org",
    "../example.com",
    "example.com/..",
    "example..com",
    "example.com/path",
    "http://example.com",
    "10.0.1.0/33",
    "10.0.1.0/255.255.255.0",
    "10.0.1.0/0.0.0.255",
    "10.0.1.0/",
    "ex\u00e4mple.com",
    "\uff11\uff10.0.1.1",
    "xn--exmple-cua.com",
    "a.XN--P1AI",
    "-a.com",
    "a-.com",
    "a" * 64 + ".com",
    "10.0.1",
    "167772417",
    "0x0a000101",
    "0xa.0.1.1",
    "010.0.1.1",
    "10.0.1.1.",
    "fe80::1%eth0",
    "10.0.1.1:80",
]


def test_no_targets(scope: Scope) -> None:
    for target in NO_TARGETS:
        assert raised(TargetError, parse_target, target), target
        assert "is not a target" in (scope.refusal(target) or ""), target


def test_without_a_scope_nothing_is_in_scope() -> None:
    assert load_scope(None) is NO_SCOPE
    assert "no scope file is configured" in (NO_SCOPE.refusal("10.0.1.1") or "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("= 1", "Invalid"),
        ("x = 1", "x: is not a known field"),
        ("scope = 1", "scope: must be a table"),
        ("[scope]\nhosts = []", "scope.hosts: is not a known field"),
        ("[scope]\ntargets = 'x'", "scope.targets: must be an array"),
        ("[scope]\ntargets = [1]", "scope.targets: 1 must be a string"),
        ("[scope]\ntargets = ['example.com']", "scope.targets: example.com is not an address"),
        ("[scope]\ntargets = ['10.0.0.0/40']", "scope.targets: '10.0.0.0/40': "),
        ("[scope]\ndomains = ['10.0.0.1']", "scope.domains: 10.0.0.1/32 is not a domain"),
        ("[scope]\ndomains = ['*']", "scope.domains: '*': "),
        ("[scope]\ndomains = ['a.*.com']", "scope.domains: 'a.*.com': "),
        ("[scope]\nexclude = ['*.10.0.0.1']", "scope.exclude: '*.10.0.0.1': *. may only precede"),
    ],
)
def test_a_file_that_can_not_be_used_denies_all(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    path = tmp_path / "scope.toml"
    if text is not None:
        path.write_text(text)
    scope = load_scope(path)
    assert scope.problem is not None
    assert f"{path}: " in scope.problem
    assert reason in scope.problem
    assert scope.refusal("10.0.1.1") == scope.problem


addresses = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)


@given(addresses, st.integers(0, 32), st.integers(0, 32), addresses)
def test_a_network_is_in_scope_only_as_a_subset(
    base: ipaddress.IPv4Address, length: int, asked: int, other: ipaddress.IPv4Address
) -> None:
    allowed = ipaddress.ip_network((base, length), strict=False)
    wanted = ipaddress.ip_network((other, asked), strict=False)
    scope = Scope(networks=(allowed,))
    assert (scope.refusal(str(wanted)) is None) == wanted.subnet_of(allowed)  # type: ignore[arg-type]


@given(addresses, st.integers(0, 32), st.integers(0, 96))
def test_an_excluded_address_is_in_no_target(
    excluded: ipaddress.IPv4Address, asked: int, wide: int
) -> None:
    scope = Scope(
        networks=(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")),
        excluded_networks=(
            ipaddress.ip_network(excluded),
            ipaddress.ip_network(f"::ffff:{excluded}/128"),
        ),
    )
    assert scope.refusal(str(ipaddress.ip_network((excluded, asked), strict=False))) is not None
    mapped = ipaddress.ip_network((f"::ffff:{excluded}", wide), strict=False)
    assert scope.refusal(str(mapped)) is not None


@given(st.text(max_size=300))
def test_no_text_can_break_it(text: str) -> None:
    """A target in scope is one of the names, or an address in the networks."""
    scope = Scope(networks=(ipaddress.ip_network("10.0.0.0/8"),), domains=("*.example.com",))
    if scope.refusal(text) is None:
        parsed = parse_target(text)
        if isinstance(parsed, str):
            assert parsed.endswith(".example.com")
        else:
            assert parsed.subnet_of(scope.networks[0])  # type: ignore[arg-type]


# ToolClad's test vectors for implementations.


@pytest.mark.parametrize(
    ("target", "network", "inside"),
    [
        ("10.0.1.5", "10.0.1.0/24", True),
        ("10.0.2.5", "10.0.1.0/24", False),
        ("10.0.1.0", "10.0.1.0/24", True),
        ("10.0.1.255", "10.0.1.0/24", True),
        ("192.168.1.1", "192.168.0.0/16", True),
        ("172.16.0.1", "192.168.0.0/16", False),
        ("10.0.0.1", "10.0.0.1/32", True),
        ("10.0.0.2", "10.0.0.1/32", False),
        ("2001:db8::1", "2001:db8::/32", True),
        ("2001:db9::1", "2001:db8::/32", False),
        ("::1", "::1/128", True),
    ],
)
def test_addresses_of_networks(target: str, network: str, inside: bool) -> None:
    scope = Scope(networks=(ipaddress.ip_network(network),))
    assert (scope.refusal(target) is None) == inside


@pytest.mark.parametrize(
    ("target", "domain", "inside"),
    [
        ("app.example.com", "*.example.com", True),
        ("example.com", "*.example.com", False),
        ("deep.sub.example.com", "*.example.com", True),
        ("example.com", "example.com", True),
        ("notexample.com", "example.com", False),
        ("evil-example.com", "*.example.com", False),
    ],
)
def test_names_of_domains(target: str, domain: str, inside: bool) -> None:
    assert (Scope(domains=(domain,)).refusal(target) is None) == inside


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("10.0.1.1", True),
        ("2001:db8::1", True),
        ("example.com", True),
        ("sub.example.com", True),
        ("10.0.1.0/24", True),
        ("*.example.com", False),
        ("example.com; rm -rf /", False),
        ("$(whoami).evil.com", False),
        ("example.com\nmalicious.com", False),
        ("", False),
        ("10.0.1.1|cat /etc/passwd", False),
    ],
)
def test_values_of_targets(value: str, valid: bool) -> None:
    if valid:
        parse_target(value)
        return
    with pytest.raises(TargetError):
        parse_target(value)


@pytest.mark.parametrize(
    ("url", "inside"),
    [
        ("https://api.example.com/v1", True),
        ("https://evil.com/api", False),
        ("https://api.example.com.evil.com/v1", False),
        ("https://api.example.com@evil.com/v1", False),
        ("https://me@api.example.com:8443/v1", True),
        # Parsers disagree about these.
        ("https://evil.com\\@api.example.com/", False),
        ("https://evil.com\\.api.example.com/", False),
        ("https://a@evil.com@api.example.com/", False),
        ("https://api.example.com:99999/", False),
        ("https://api.example.com:0/", False),
        ("https://api.example.com:x@evil.com/", False),
        ("https://10.0.0.1/", False),
    ],
)
def test_hosts_of_urls(url: str, inside: bool) -> None:
    argument = Argument("address", "url", scope_check=True)
    assert (argument.refusal(url, Scope(domains=("api.example.com",))) is None) == inside


@pytest.mark.parametrize("url", ["https://evil.com/", "ftp://api.example.com/x"])
def test_urls_need_no_scope_where_none_is_asked_for(url: str) -> None:
    assert Argument("address", "url").refusal(url, NO_SCOPE) is None
