"""Adds single rules to a session's own. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Rules
from orchestrator.rules.egress.session_rules import OwnRules, SessionRules


def covers(rule: Rule, other: Rule) -> bool:
    """Whether `rule` applies to everything to which `other` applies."""
    return (
        _place_within(other, rule)
        and _within(other.ports, rule.ports)
        and _within(other.methods, rule.methods)
        and _within(other.paths, rule.paths)
        and _within(other.programs, rule.programs)
        and (rule.inspect or not other.inspect)
        and (rule.upgrade or not other.upgrade)
    )


def permits(rules: SessionRules, rule: Rule) -> bool:
    """Whether the level or an admin allows what the rule allows, and the owner does, too."""
    only = rules.own.only.allow
    wide = (*rules.level.allow, *rules.own.also.allow)
    return _any_covers(wide, rule) and (only is None or _any_covers(only, rule))


def denial(rules: SessionRules, rule: Rule) -> str | None:
    """The name of a rule that denies all that the rule would allow; None: there is none."""
    own = rules.own
    lists = {"level": rules.level.deny, "also": own.also.deny, "only": own.only.deny}
    for layer, deny in lists.items():
        for denied in deny:
            if covers(denied, replace(rule, inspect=False, upgrade=False)):
                return f"{layer}: deny {denied}"
    return None


def narrows(old: OwnRules, new: OwnRules) -> bool:
    """Whether the new rules allow nothing in addition, and have all denials of the old ones.

    A new denial that inspects does not narrow: tunnels are then inspected instead of denied.
    """
    fewer, more = new.only.allow, old.only.allow
    before = {*old.only.deny, *old.also.deny}
    added = {*new.only.deny, *new.also.deny} - before
    return (
        set(old.only.deny) <= set(new.only.deny)
        and set(old.also.deny) <= set(new.also.deny)
        and not any(rule.inspect for rule in added)
        and set(new.also.allow) <= set(old.also.allow)
        and (more is None or (fewer is not None and set(fewer) <= set(more)))
    )


def with_rules(
    rules: SessionRules, allow: Iterable[Rule], deny: Iterable[Rule], *, admin: bool
) -> OwnRules:
    """The session's own rules with these as well, wherever they are necessary.

    A rule that is to be allowed is no longer denied: by the owner's rules, and, for an admin, by
    the admin's. What the level does not allow is allowed in `also`, whoever asks. An admin denies
    in `also`, so that the owner can't lift it.
    """
    own = rules.own
    for rule in allow:
        own = _allowing(SessionRules(rules.session_id, rules.level, own), rule, admin=admin)
    for rule in deny:
        own = _denying(own, rule, admin=admin)
    return rules.own.changed(own.only, own.also)


def _allowing(rules: SessionRules, rule: Rule, *, admin: bool) -> OwnRules:
    only, also = rules.own.only, rules.own.also
    only = replace(only, deny=_without(only.deny, rule))
    if admin:
        also = replace(also, deny=_without(also.deny, rule))
    if not _any_covers((*rules.level.allow, *also.allow), rule):
        also = Rules((*also.allow, rule), also.deny)
    if only.allow is not None and not _any_covers(only.allow, rule):
        only = replace(only, allow=(*only.allow, rule))
    return replace(rules.own, only=only, also=also)


def _denying(own: OwnRules, rule: Rule, *, admin: bool) -> OwnRules:
    if admin:
        if _any_covers(own.also.deny, rule):
            return own
        return replace(own, also=replace(own.also, deny=(*own.also.deny, rule)))
    if _any_covers(own.only.deny, rule):
        return own
    return replace(own, only=replace(own.only, deny=(*own.only.deny, rule)))


def _any_covers(rules: Iterable[Rule], rule: Rule) -> bool:
    return any(covers(each, rule) for each in rules)


def _without(deny: tuple[Rule, ...], allowed: Rule) -> tuple[Rule, ...]:
    """The denials without those of exactly this, whatever their ports are."""
    whole = replace(allowed, ports=(), inspect=False, upgrade=False)
    return tuple(each for each in deny if replace(each, ports=(), inspect=False) != whole)


def _within(few: tuple[object, ...], many: tuple[object, ...]) -> bool:
    """Whether the first list is in the second; an empty list stands for everything."""
    return not many or (bool(few) and set(few) <= set(many))


def _place_within(few: Rule, many: Rule) -> bool:
    if few.network is not None and many.network is not None:
        return few.network.version == many.network.version and few.network.subnet_of(
            many.network  # type: ignore[arg-type]
        )
    if few.host is None or many.host is None:
        return False
    return few.host == many.host or (
        many.host.startswith("*.") and few.host.removeprefix("*").endswith(many.host[1:])
    )
