"""The rules of one session: its owner can only narrow, and nobody can widen beyond a denial."""

import ipaddress
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import ValidationError
from orchestrator.rules.egress.outgoing_request import UNKNOWN, Glob, Outgoing, Requested
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import NO_RULES, Rules
from orchestrator.rules.egress.session_egress import narrowing_of, rules_of
from orchestrator.rules.egress.session_rules import NO_OWN_RULES, Narrowing, OwnRules, SessionRules
from orchestrator.settings.hosts import Address, parse_host

NAMES = ["a.example", "b.example", "x.b.example"]
PRIVATE = ipaddress.ip_network("10.0.0.0/8")
HOSTS = st.sampled_from([*NAMES, ipaddress.ip_address("10.1.2.3"), ipaddress.ip_address("1.1.1.1")])
PORTS = st.sampled_from([80, 443, 5432])
REQUESTS = st.none() | st.builds(
    Requested,
    st.sampled_from(["GET", "POST"]),
    st.sampled_from(["/", "/a", "/a/b", None]),
    st.just("unclear"),
)
HOST_RULES = st.builds(
    Rule,
    host=st.sampled_from([*NAMES, "*.example", "*.b.example"]),
    ports=st.sampled_from([(), (80, 443), (5432,)]),
    methods=st.sampled_from([(), ("GET",)]),
    paths=st.sampled_from([(), (Glob("/a/**"),), (Glob("/"),)]),
    inspect=st.booleans(),
    upgrade=st.booleans(),
    programs=st.sampled_from([(), ("git",), ("git", "curl")]),
)
PROGRAMS = st.sampled_from(["git", "curl", "pip", UNKNOWN])
OUTGOING = st.builds(Outgoing, HOSTS, PORTS, REQUESTS, PROGRAMS)
RULES = HOST_RULES | st.builds(Rule, network=st.just(PRIVATE), ports=st.sampled_from([(), (80,)]))
LISTS = st.lists(RULES, max_size=3).map(tuple)
SETS = st.builds(Rules, LISTS, LISTS)
NARROWINGS = st.builds(Narrowing, st.none() | LISTS, LISTS)


@given(SETS, SETS, NARROWINGS, OUTGOING)
def test_a_narrowing_allows_nothing_more(
    level: Rules, also: Rules, only: Narrowing, outgoing: Outgoing
) -> None:
    wide = SessionRules("s", level, OwnRules(also=also)).decide(outgoing)
    narrow = SessionRules("s", level, OwnRules(only, also)).decide(outgoing)
    assert wide.allow or not narrow.allow
    if only.allow is not None and narrow.allow:
        alone = Rules(only.allow, only.deny).decide(outgoing)
        assert alone.allow or narrow.inspect


@given(SETS, SETS, NARROWINGS, OUTGOING)
def test_a_program_that_is_not_known_may_do_nothing_more(
    level: Rules, also: Rules, only: Narrowing, outgoing: Outgoing
) -> None:
    rules = SessionRules("s", level, OwnRules(only, also))
    unknown = rules.decide(outgoing._replace(program=UNKNOWN))
    assert rules.decide(outgoing).allow or not unknown.allow or unknown.inspect


def test_a_denial_that_inspects_opens_no_tunnel() -> None:
    plain = Rule("b.example", paths=(Glob("/a/**"),))  # by http only
    level = Rules((plain,))
    only = Narrowing(deny=(Rule("b.example", paths=(Glob("/b"),), inspect=True),))
    rules = SessionRules("s", level, OwnRules(only))
    assert not rules.decide(Outgoing("b.example", 443, None)).allow
    assert rules.decide(Outgoing("b.example", 80, Requested("GET", "/a/b"))).allow


@given(SETS, SETS, NARROWINGS, OUTGOING, st.sampled_from(["/", "/a", "/a/b"]))
def test_nothing_beats_a_denial(
    level: Rules, also: Rules, only: Narrowing, tunnel: Outgoing, path: str
) -> None:
    requested = Requested("GET", path)
    host, port, _, program = tunnel = tunnel._replace(requested=None)
    rules = SessionRules("s", level, OwnRules(only, also))
    for deny in (level.deny, also.deny, only.deny):
        about = [rule for rule in deny if rule.matches(host, port) and rule.denies_by(program)]
        if any(rule.denies(requested) for rule in about):
            assert not rules.decide(tunnel._replace(requested=requested)).allow
            decided = rules.decide(tunnel)
            # What is inside is decided by itself.
            assert decided.inspect or not decided.allow


@given(SETS, SETS, NARROWINGS, PORTS)
def test_a_private_address_must_be_listed_by_both(
    level: Rules, also: Rules, only: Narrowing, port: int
) -> None:
    address: Address = ipaddress.ip_address("10.1.2.3")
    decision = SessionRules("s", level, OwnRules(only, also)).decide_address(address, port)
    if decision.allow:
        assert any(rule.matches(address, port) for rule in (*level.allow, *also.allow))
        assert only.allow is None or any(rule.matches(address, port) for rule in only.allow)
    assert (
        not SessionRules("s", level, OwnRules(only, also))
        .decide_address(ipaddress.ip_address("169.254.169.254"), port)
        .allow
    )


@given(SETS, OUTGOING)
def test_without_own_rules_the_level_decides(level: Rules, outgoing: Outgoing) -> None:
    mine, its = (each.decide(outgoing) for each in (SessionRules("s", level), level))
    assert (mine.allow, mine.rule, mine.inspect) == (its.allow, its.rule, its.inspect)


@given(SETS, NARROWINGS, st.integers(0, 9))
def test_they_are_stored_and_restored(also: Rules, only: Narrowing, revision: int) -> None:
    rules = OwnRules(only, also, revision)
    assert OwnRules.restored(json.loads(json.dumps(rules.stored()))) == rules
    assert OwnRules.restored({}) == NO_OWN_RULES


LEVEL = Rules((Rule("a.example"), Rule("b.example")), (Rule("bad.example"),))


@pytest.mark.parametrize(
    ("own", "host", "rule", "remedy"),
    [
        (OwnRules(), "a.example", "allow a.example", None),
        (OwnRules(), "c.example", "not-listed", "`paddock egress allow s c.example`"),
        (OwnRules(also=Rules((Rule("c.example"),))), "c.example", "also: allow c.example", None),
        (OwnRules(also=Rules((Rule("bad.example"),))), "bad.example", "deny bad.example", "file"),
        (
            OwnRules(also=Rules((), (Rule("a.example"),))),
            "a.example",
            "also: deny a.example",
            "An admin can change it: `paddock egress show s`",
        ),
        (
            OwnRules(Narrowing((Rule("a.example"),))),
            "b.example",
            "only: not-listed",
            "Its owner can add it: `paddock egress allow s b.example`",
        ),
        (
            OwnRules(Narrowing(())),
            "a.example",
            "only: not-listed",
            "Its owner can add it: `paddock egress allow s a.example`",
        ),
        (OwnRules(Narrowing(None, (Rule("a.example"),))), "b.example", "allow b.example", None),
        (
            OwnRules(Narrowing(None, (Rule("a.example"),))),
            "a.example",
            "only: deny a.example",
            "Its owner can change it",
        ),
        (OwnRules(), "169.254.169.254", "not-listed", "No rule can allow it"),
        (OwnRules(), "10.0.0.1", "not-listed", "`paddock egress allow s 10.0.0.1/32`"),
    ],
)
def test_a_denial_names_the_layer_and_its_remedy(
    own: OwnRules, host: str, rule: str, remedy: str | None
) -> None:
    decision = SessionRules("s", LEVEL, own).decide(Outgoing(parse_host(host), 443))
    assert decision.rule == rule
    assert decision.allow == (remedy is None)
    assert remedy is None or remedy in str(decision.remedy)


def test_a_missing_rule_is_no_wider_than_what_was_requested() -> None:
    level = Rules((Rule("a.example", methods=("GET",), paths=(Glob("/simple/**"),)),))
    rules = SessionRules("s", level)
    decision = rules.decide(Outgoing("a.example", 80, Requested("POST", "/it's")))
    assert str(decision.missing) == "a.example:80,443 POST /it's"
    assert "allow s a.example --method POST --path '/it'\"'\"'s'`" in str(decision.remedy)
    assert rules.decide(Outgoing("a.example", 80, Requested("POST", "/*"))).missing is None
    assert (
        rules.decide(Outgoing("a.example", 80, Requested("POST", None, "unclear"))).missing is None
    )
    address = ipaddress.ip_address("fd00::1")
    remedy = str(rules.decide(Outgoing(address, 22)).remedy)
    assert "allow s [fd00::1/128]:22`" in remedy.replace("'", "")


def test_they_are_recorded_as_texts() -> None:
    rules = OwnRules(Narrowing((), (Rule("a.example", ports=(443,)),)), Rules((Rule("b.example"),)))
    assert rules.recorded() == {
        "only": ["allow nothing", "deny a.example:443"],
        "also": ["allow b.example"],
    }


def test_another_level_drops_what_an_admin_allowed() -> None:
    rules = OwnRules(Narrowing(()), Rules((Rule("a.example"),)), 3)
    assert rules.at_another_level() == OwnRules(Narrowing(()), NO_RULES, 4)
    assert rules.at_another_level().at_another_level().revision == 4


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"allow": [{"host": "a b"}]}, "also.allow.0.host"),
        ({"allow": [{"host": "a.org"}, {"host": "*"}]}, "also.allow.1.host"),
        ({"allow": [{"host": "a.org", "cidr": "10.0.0.0/8"}]}, "also.allow.0"),
        ({"allow": [{"cidr": "127.0.0.0/8"}]}, "also.allow.0.cidr"),
        ({"deny": [{"host": "a.org", "ports": [0]}]}, "also.deny.0.ports.0"),
        ({"deny": [{}]}, "also.deny.0"),
    ],
)
def test_an_error_names_the_place_of_the_rule(value: dict[str, object], field: str) -> None:
    for read in (rules_of, narrowing_of):
        with pytest.raises(ValidationError) as refused:
            read(value, "also")
        assert refused.value.fields["field"] == field
        assert refused.value.detail.startswith(f"{field} ")


def test_a_narrowing_by_denials_leaves_the_rest_allowed() -> None:
    assert narrowing_of({"deny": [{"host": "a.org"}]}, "").allow is None
    assert narrowing_of({"allow": []}, "").allow == ()
