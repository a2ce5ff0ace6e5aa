"""Rules are added where they are needed, and a host is never opened further than was said."""

import pytest
from hypothesis import given

from orchestrator.rules.egress.outgoing_request import Glob, Outgoing
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import NOT_LISTED, Rules
from orchestrator.rules.egress.session_rules import Narrowing, OwnRules, SessionRules
from orchestrator.sandbox.egress.rule_changes import covers, denial, narrows, permits, with_rules
from tests.unit.test_egress_session_rules import NARROWINGS, OUTGOING, RULES, SETS


@given(RULES, RULES, OUTGOING)
def test_a_rule_that_covers_another_allows_all_that_it_allows(
    rule: Rule, other: Rule, outgoing: Outgoing
) -> None:
    if not covers(rule, other):
        return
    few, many = (Rules((each,)).decide(outgoing) for each in (other, rule))
    assert many.allow or not few.allow
    assert covers(rule, rule)


@pytest.mark.parametrize(
    ("rule", "other", "covered"),
    [
        (Rule("*.b.org"), Rule("a.b.org", ports=(443,)), True),
        (Rule("*.b.org"), Rule("*.a.b.org"), True),
        (Rule("*.b.org"), Rule("b.org"), False),
        (Rule("*.b.org"), Rule("*.xb.org"), False),
        (Rule("a.org", ports=(80, 443)), Rule("a.org", ports=(443,)), True),
        (Rule("a.org", ports=(443,)), Rule("a.org"), False),
        (Rule("a.org", methods=("GET",)), Rule("a.org"), False),
        (Rule("a.org"), Rule("a.org", paths=(Glob("/a"),)), True),
        (Rule("a.org"), Rule("a.org", inspect=True), False),
    ],
)
def test_what_covers(rule: Rule, other: Rule, covered: bool) -> None:
    assert covers(rule, other) == covered


@given(SETS, SETS, NARROWINGS, RULES)
def test_an_added_rule_is_permitted_and_nothing_else_changes(
    level: Rules, also: Rules, only: Narrowing, rule: Rule
) -> None:
    before = SessionRules("s", level, OwnRules(only, also, 7))
    own = with_rules(before, [rule], [], admin=False)
    after = SessionRules("s", level, own)
    assert permits(after, rule)
    assert own.also.deny == also.deny
    assert with_rules(after, [rule], [], admin=False) is own
    assert set(own.also.allow) - set(also.allow) <= {rule}
    assert (own is before.own) == (own.revision == 7)


@given(SETS, NARROWINGS, OUTGOING)
def test_a_missing_rule_allows_the_request(
    level: Rules, only: Narrowing, outgoing: Outgoing
) -> None:
    rules = SessionRules("s", level, OwnRules(only))
    decision = rules.decide(outgoing)
    for _ in range(2):  # it may be missing in two layers, of which one is told at a time
        if decision.missing is None:
            return
        assert NOT_LISTED in decision.rule
        own = with_rules(rules, [decision.missing], [], admin=True)
        rules = SessionRules("s", level, own)
        decision = rules.decide(outgoing)
    assert decision.allow or decision.missing is None


@given(SETS, SETS, SETS, NARROWINGS, NARROWINGS, OUTGOING)
def test_what_narrows_allows_nothing_more(
    level: Rules,
    also: Rules,
    less: Rules,
    only: Narrowing,
    other: Narrowing,
    outgoing: Outgoing,
) -> None:
    old = OwnRules(only, also)
    few = tuple(rule for rule in also.allow if rule in less.allow)
    allow = other.allow
    if only.allow is not None:
        allow = tuple(rule for rule in only.allow if rule in (other.allow or ()))
    mine, its = (tuple(rule for rule in some.deny if not rule.inspect) for some in (other, less))
    new = OwnRules(Narrowing(allow, (*only.deny, *mine)), Rules(few, (*also.deny, *its)))
    assert narrows(old, new)
    before, after = (SessionRules("s", level, own).decide(outgoing) for own in (old, new))
    assert before.allow or not after.allow


def test_what_does_not_only_narrow() -> None:
    rule = Rule("a.org")
    for old, new in (
        (OwnRules(), OwnRules(also=Rules((rule,)))),
        (OwnRules(Narrowing(())), OwnRules()),
        (OwnRules(Narrowing(())), OwnRules(Narrowing((rule,)))),
        (OwnRules(Narrowing(None, (rule,))), OwnRules()),
        (OwnRules(also=Rules((), (rule,))), OwnRules()),
    ):
        assert not narrows(old, new)
        assert narrows(new, old)
    inspects = Rule("a.org", methods=("GET",), inspect=True)
    assert not narrows(OwnRules(), OwnRules(Narrowing(None, (inspects,))))


def test_a_denial_is_the_asker_s_own() -> None:
    rules = SessionRules("s", Rules((Rule("*.org"),)))
    bad = Rule("bad.org")
    assert with_rules(rules, [], [bad], admin=False).only.deny == (bad,)
    own = with_rules(rules, [], [bad, bad], admin=True)
    assert own.also.deny == (bad,)
    denied = SessionRules("s", rules.level, own)
    assert denial(denied, Rule("bad.org", ports=(443,))) == "also: deny bad.org"
    # A wider rule does not lift it, and neither does the owner.
    assert with_rules(denied, [Rule("*.org")], [], admin=True).also.deny == (bad,)
    assert with_rules(denied, [bad], [], admin=False).also.deny == (bad,)
    assert with_rules(denied, [Rule("bad.org", ports=(443,))], [], admin=True).also.deny == ()
