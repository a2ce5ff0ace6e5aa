"""The rules of one session: its level's, fewer by its owner, and more by an admin. Pure.

A rule that denies beats all that allow, whoever set it. A request is allowed if the level or the
admin's rules allow it, and the owner's do, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from orchestrator.rules.egress.missing_rule import missing_rule, words_of
from orchestrator.rules.egress.outgoing_request import Outgoing
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import (
    ADDRESS_REFUSED,
    NO_RULES,
    NOT_LISTED,
    Decision,
    Rules,
    any_port,
)
from orchestrator.settings.hosts import Address, Host

Layer = Literal["level", "only", "also"]


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Rules that must allow a request, too; if `allow` is None, they allow all but `deny`."""

    allow: tuple[Rule, ...] | None = None
    deny: tuple[Rule, ...] = ()

    def stored(self) -> dict[str, Any]:
        """Their form in JSON."""
        rules = Rules(self.allow or (), self.deny).stored()
        return rules if self.allow is not None else {**rules, "allow": None}

    def given(self) -> dict[str, Any]:
        """The rules as a request has them, without members that are not set."""
        return {
            kind: [{name: each for name, each in rule.items() if each} for rule in rules]
            for kind, rules in self.stored().items()
            if rules is not None
        }

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """What `stored` returned; an empty mapping narrows nothing."""
        narrows = values.get("allow") is not None
        rules = Rules.restored(values if narrows else {**values, "allow": ()})
        return cls(rules.allow if narrows else None, rules.deny)


NO_NARROWING = Narrowing()


@dataclass(frozen=True, slots=True)
class OwnRules:
    """The rules of a session besides its level's. `revision` counts their changes."""

    only: Narrowing = NO_NARROWING
    also: Rules = NO_RULES
    revision: int = 0

    def changed(self, only: Narrowing, also: Rules) -> "OwnRules":
        """With these rules; itself if they are the same."""
        if (only, also) == (self.only, self.also):
            return self
        return OwnRules(only, also, self.revision + 1)

    def at_another_level(self) -> "OwnRules":
        """The rules after a change of the level: an admin widened only the earlier level."""
        return self.changed(self.only, NO_RULES)

    def stored(self) -> dict[str, Any]:
        """Their form in JSON."""
        return {
            "only": self.only.stored(),
            "also": self.also.stored(),
            "revision": self.revision,
        }

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """What `stored` returned; an empty mapping has no rules."""
        return cls(
            Narrowing.restored(values.get("only", {})),
            Rules.restored(values.get("also", {})),
            values.get("revision", 0),
        )

    def recorded(self) -> dict[str, list[str]]:
        """Their form in events: each rule is a text."""
        return {"only": _texts(self.only), "also": _texts(self.also)}


NO_OWN_RULES = OwnRules()


@dataclass(frozen=True, slots=True)
class SessionRules:
    """All rules that a session has at present; `session_id` is for the remedies of denials."""

    session_id: str
    level: Rules
    own: OwnRules = NO_OWN_RULES

    def decide(self, outgoing: Outgoing) -> Decision:
        """As `Rules.decide`."""
        return self._decide(
            lambda rules: rules.decide(outgoing),
            lambda rules: missing_rule(rules, outgoing),
        )

    def decide_address(self, address: Address, port: int) -> Decision:
        """As `Rules.decide_address`; rules that narrow must list a private address, too."""
        return self._decide(
            lambda rules: rules.decide_address(address, port),
            lambda rules: missing_rule(rules, Outgoing(address, port)),
        )

    def upgraded(self, host: Host, port: int) -> int | None:
        """As `Rules.upgraded`, by any of the rules."""
        own = self.own
        allow = (*self.level.allow, *own.also.allow, *(own.only.allow or ()))
        return Rules(allow).upgraded(host, port)

    def decide_any_port(self, host: Host) -> Decision:
        """As `Rules.decide_any_port`."""
        own, level = self.own, self.level.of_any_program()
        also = own.also.of_any_program()
        only = Rules(own.only.allow or (), own.only.deny).of_any_program()
        narrowing = Narrowing(None if own.only.allow is None else only.allow, only.deny)
        rules = SessionRules(self.session_id, level, OwnRules(narrowing, also, own.revision))
        return any_port(rules, (*level.allow, *also.allow), host)

    def _decide(
        self, decide: Callable[[Rules], Decision], missing: Callable[[Rules], Rule | None]
    ) -> Decision:
        """Decides by the rules of level and admin, then by the owner's; denials are in both."""
        own = self.own
        allow, deny = (*self.level.allow, *own.also.allow), (*self.level.deny, *own.also.deny)
        others, deny = Rules(allow, deny), (*deny, *own.only.deny)
        wide = Rules(allow, deny)
        decision = decide(wide)
        if decision.allow and own.only.deny and not (before := decide(others)).allow:
            # An owner's denial that inspects opens no tunnel that was closed without it.
            wide, decision = others, before
        if not decision.allow:
            return self._denied(decision, self._layer(decision), missing(wide))
        inspect = decision.inspect
        if own.only.allow is not None:
            narrow = Rules(own.only.allow, deny)
            narrowed = decide(narrow)
            if not narrowed.allow:
                return self._denied(narrowed, "only", missing(narrow))
            inspect = inspect or narrowed.inspect
        return replace(decision, rule=_named(self._layer(decision), decision), inspect=inspect)

    def _layer(self, decision: Decision) -> Layer:
        """The layer that has the rule that decided; the level if there is no rule."""
        own, denies = self.own, decision.rule.startswith("deny ")
        if any(rule is decision.by for rule in (own.also.deny if denies else own.also.allow)):
            return "also"
        if denies and any(rule is decision.by for rule in own.only.deny):
            return "only"
        return "level"

    def _denied(self, decision: Decision, layer: Layer, missing: Rule | None) -> Decision:
        """The decision with the layer before its rule, and with that layer's remedy."""
        if decision.rule not in (NOT_LISTED, ADDRESS_REFUSED):
            missing = None  # another rule would not help
        rule, remedy = _named(layer, decision), self._remedy(decision, layer, missing)
        return replace(decision, rule=rule, remedy=remedy, missing=missing)

    def _remedy(self, decision: Decision, layer: Layer, missing: Rule | None) -> str | None:
        if missing is None:
            return decision.remedy if layer == "level" else self._of_own_rule(layer)
        command = f"`paddock egress allow {self.session_id} {words_of(missing)}`"
        if layer == "only":
            return f"The session's own rules leave it out. Its owner can add it: {command}."
        return f"{decision.remedy} An admin can allow it to this session alone: {command}."

    def _of_own_rule(self, layer: Layer) -> str:
        who = "An admin" if layer == "also" else "Its owner"
        return (
            f"The rule is the session's own. {who} can change it: "
            f"`paddock egress show {self.session_id}` shows all."
        )


def _named(layer: Layer, decision: Decision) -> str:
    return decision.rule if layer == "level" else f"{layer}: {decision.rule}"


def _texts(rules: Narrowing | Rules) -> list[str]:
    nothing = ["allow nothing"] if isinstance(rules, Narrowing) and rules.allow == () else []
    lists = (("allow", rules.allow or ()), ("deny", rules.deny))
    texts = [f"{kind} {_text(rule)}" for kind, some in lists for rule in some]
    return [*nothing, *texts]


def _text(rule: Rule) -> str:
    notes = (" (inspected)" if rule.inspect else "", " (upgraded)" if rule.upgrade else "")
    return f"{rule}{''.join(notes)}"
