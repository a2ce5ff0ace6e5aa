"""What is not allowed is denied, and what is denied stays denied."""

import ipaddress
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.egress.missing_rule import missing_rule
from orchestrator.rules.egress.outgoing_request import Outgoing
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import ADDRESS_REFUSED, NO_RULES, NOT_LISTED, Rules
from orchestrator.settings.hosts import parse_host

RULES = Rules(
    allow=(
        Rule("example.org", None, (80, 443)),
        Rule("*.example.net", None, (443,)),
        Rule(None, ipaddress.ip_network("10.1.0.0/16"), (5432,)),
    ),
    deny=(
        Rule("bad.example.net"),
        Rule(None, ipaddress.ip_network("10.1.9.0/24")),
    ),
)


@pytest.mark.parametrize(
    ("host", "port", "rule"),
    [
        ("example.org", 443, "allow example.org:80,443"),
        ("EXAMPLE.org.", 80, "allow example.org:80,443"),
        ("example.org", 22, NOT_LISTED),
        ("www.example.org", 443, NOT_LISTED),
        ("example.net", 443, NOT_LISTED),
        ("a.example.net", 443, "allow *.example.net:443"),
        ("a.b.example.net", 443, "allow *.example.net:443"),
        ("xexample.net", 443, NOT_LISTED),
        ("example.net.evil.org", 443, NOT_LISTED),
        ("bad.example.net", 443, "deny bad.example.net"),
        ("10.1.2.3", 5432, "allow 10.1.0.0/16:5432"),
        ("10.1.2.3", 5433, NOT_LISTED),
        ("::ffff:10.1.2.3", 5432, "allow 10.1.0.0/16:5432"),
        ("10.1.9.3", 5432, "deny 10.1.9.0/24"),
        ("10.2.2.3", 5432, NOT_LISTED),
    ],
)
def test_a_request_is_decided_by_the_first_rule_that_denies_or_allows(
    host: str, port: int, rule: str
) -> None:
    decision = RULES.decide(Outgoing(parse_host(host), port))
    assert decision.rule == rule
    assert decision.allow == rule.startswith("allow ")
    assert (decision.remedy is None) == decision.allow


def test_a_remedy_is_what_to_add_to_the_file() -> None:
    assert 'host = "a.org" and ports = [22]' in str(NO_RULES.decide(Outgoing("a.org", 22)).remedy)
    address = ipaddress.IPv4Address("1.1.1.1")
    assert 'cidr = "1.1.1.1/32"' in str(NO_RULES.decide(Outgoing(address, 443)).remedy)
    metadata = ipaddress.IPv4Address("169.254.169.254")
    assert str(NO_RULES.decide(Outgoing(metadata, 80)).remedy).startswith("No rule can allow it")


@pytest.mark.parametrize(
    ("address", "port", "rule"),
    [
        ("93.184.216.34", 443, "public"),
        ("10.1.2.3", 5432, "allow 10.1.0.0/16:5432"),
        ("10.1.2.3", 443, ADDRESS_REFUSED),
        ("10.1.9.3", 5432, "deny 10.1.9.0/24"),
        ("127.0.0.1", 443, ADDRESS_REFUSED),
        ("169.254.169.254", 80, ADDRESS_REFUSED),
    ],
)
def test_an_address_must_be_public_or_listed(address: str, port: int, rule: str) -> None:
    decision = RULES.decide_address(ipaddress.ip_address(address), port)
    assert decision.rule == rule
    assert decision.allow == (rule == "public" or rule.startswith("allow "))


def test_a_rule_can_t_list_what_no_sandbox_may_reach() -> None:
    everything = Rules(allow=(Rule(None, ipaddress.ip_network("0.0.0.0/0")),))
    assert not everything.decide_address(ipaddress.ip_address("127.0.0.1"), 80).allow


def test_a_rule_may_be_for_some_programs() -> None:
    rules = Rules(
        (Rule("a.org", programs=("git", "pip")), Rule("b.org")),
        (Rule("b.org", programs=("curl",)),),
    )
    assert rules.decide(Outgoing("a.org", 443, program="pip")).allow
    for program in ("curl", "unknown"):
        denied = rules.decide(Outgoing("a.org", 443, program=program))
        assert (denied.allow, denied.rule) == (False, NOT_LISTED)
        assert "are for other programs than" in (denied.why or "")
        # What a program that is not known may be is denied.
        assert rules.decide(Outgoing("b.org", 443, program=program)).rule == "deny b.org by curl"
    assert rules.decide(Outgoing("b.org", 443, program="pip")).allow
    assert rules.decide_any_port("a.org").allow
    assert rules.decide_any_port("b.org").allow
    assert str(rules.allow[0]) == "a.org by git,pip"
    assert Rules.restored(json.loads(json.dumps(rules.stored()))) == rules
    assert missing_rule(rules, Outgoing("a.org", 443, None, "curl")) == Rule(
        "a.org", None, (80, 443), programs=("curl",)
    )
    assert missing_rule(rules, Outgoing("a.org", 443)) is None
    assert missing_rule(rules, Outgoing("c.org", 443, None, "curl")) == Rule(
        "c.org", None, (80, 443)
    )


def test_http_requests_are_upgraded_to_the_port_of_a_rule() -> None:
    rules = Rules((Rule("a.org", ports=(80, 443), upgrade=True), Rule("b.org")))
    assert rules.upgraded("a.org", 80) == rules.upgraded("a.org", 443) == 443
    assert rules.upgraded("a.org", 8080) is None
    assert rules.upgraded("b.org", 80) is None
    other = Rules((Rule("a.org", ports=(8443,), upgrade=True), Rule("a.org", ports=(80,))))
    assert (other.upgraded("a.org", 8443), other.upgraded("a.org", 80)) == (8443, None)
    assert Rules.restored(json.loads(json.dumps(rules.stored()))) == rules


@given(st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,8}){0,3}", fullmatch=True), st.integers(1, 65535))
def test_without_rules_nothing_is_allowed(host: str, port: int) -> None:
    assert not NO_RULES.decide(Outgoing(host, port)).allow


def test_rules_are_stored_and_restored() -> None:
    assert Rules.restored(json.loads(json.dumps(RULES.stored()))) == RULES
    assert Rules.restored({}) == NO_RULES
