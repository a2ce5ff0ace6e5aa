"""The rules of the way out, and their decisions. Pure.

A request is denied unless a rule allows it; a rule that denies beats one that allows. There is one
decision about a whole tunnel, unless a rule has it inspected.
"""

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from orchestrator.rules.egress.outgoing_request import UNKNOWN, Glob, Outgoing, Requested
from orchestrator.rules.egress.rule import Rule
from orchestrator.settings.addresses import special
from orchestrator.settings.hosts import Address, Host

WEB_PORTS = (80, 443)
# The ports to which `http://` requests to these ports go in TLS; other ports do not change.
_UPGRADED = {80: 443}
NOT_LISTED = "not-listed"
ADDRESS_REFUSED = "address-refused"
NOT_INSPECTED = "not-inspected"
TLS_REFUSED = "tls-refused"
_MOST_SHOWN = 200  # of a path, in characters


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. `why` and `remedy` are sentences; None if it is allowed.

    `rule` names what decided, and `by` is the rule that did, if one did. `inspect`: there must be a
    decision about each request in the tunnel. `missing` is a rule that would allow it, if a
    session's own rules may have it.
    """

    allow: bool
    rule: str
    why: str | None = None
    remedy: str | None = None
    by: Rule | None = None
    inspect: bool = False
    missing: Rule | None = None


class Decider(Protocol):
    """Decides requests and addresses."""

    def decide(self, outgoing: Outgoing) -> Decision:
        """Decides before the host's addresses are known."""

    def decide_address(self, address: Address, port: int) -> Decision:
        """Decides about an address of an allowed host: it must be public, or listed."""

    def upgraded(self, host: Host, port: int) -> int | None:
        """The port to which an `http://` request goes in TLS; None: it does not."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a session may reach."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    def decide(self, outgoing: Outgoing) -> Decision:
        """Decides before the host's addresses are known."""
        host, port, requested, program = outgoing
        about = [rule for rule in self.allow if rule.matches(host, port)]
        allow = [rule for rule in about if rule.allows_by(program)]
        deny = [rule for rule in self.deny if rule.matches(host, port) and rule.denies_by(program)]
        if about and not allow and not any(not rule.partial for rule in deny):
            return _not_by(host, port, program)
        if requested is None:
            return _tunnel(allow, deny, host, port)
        for rule in deny:
            if rule.denies(requested):
                return _denied(rule, host, port)
        for rule in allow:
            if rule.allows(requested):
                return _allowed(rule)
        return _not_listed(host, port, requested if allow else None)

    def upgraded(self, host: Host, port: int) -> int | None:
        """The port to which an `http://` request goes in TLS; None: it does not."""
        port = _UPGRADED.get(port, port)
        found = any(rule.upgrade and rule.matches(host, port) for rule in self.allow)
        return port if found else None

    @property
    def inspect(self) -> bool:
        """Whether some tunnels are inspected."""
        return any(rule.inspect for rule in (*self.allow, *self.deny))

    def decide_any_port(self, host: Host) -> Decision:
        """Decides whether some program may request something of the host at some port."""
        rules = self.of_any_program()
        return any_port(rules, rules.allow, host)

    def of_any_program(self) -> "Rules":
        """What some program may reach: the rules without their programs."""
        allow = tuple(replace(rule, programs=()) for rule in self.allow)
        return Rules(allow, tuple(rule for rule in self.deny if not rule.programs))

    def decide_address(self, address: Address, port: int) -> Decision:
        """Decides about an address of an allowed host: it must be public, or listed."""
        for rule in self.deny:
            if rule.matches(address, port):
                return _denied(rule, address, port)
        found = special(address)
        listed = [rule for rule in self.allow if rule.matches(address, port)]
        if found is None or (found.listable and listed):
            return _allowed(listed[0]) if listed else Decision(True, "public")
        remedy = _NO_REMEDY
        if found.listable:
            remedy = "The operator can list it as `cidr` of an `[[egress.allow]]` rule."
        return Decision(False, ADDRESS_REFUSED, f"{address} is a {found.kind} address", remedy)

    def stored(self) -> dict[str, Any]:
        """Their form in JSON."""
        return {"allow": _stored(self.allow), "deny": _stored(self.deny)}

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """What `stored` returned; an empty mapping has no rules."""
        return cls(_restored(values.get("allow", ())), _restored(values.get("deny", ())))


NO_RULES = Rules()


def any_port(decider: Decider, allow: Iterable[Rule], host: Host) -> Decision:
    """Decides whether something may be requested of the host at a port of these rules."""
    ports = [port for rule in allow for port in rule.ports or WEB_PORTS]
    decisions = [
        decider.decide(Outgoing(host, port)) for port in dict.fromkeys([WEB_PORTS[-1], *ports])
    ]
    for each in decisions:
        if each.allow or each.rule.endswith(NOT_INSPECTED):
            return Decision(True, each.rule)
    # A rule that denies says more than that no rule allows.
    return next((each for each in decisions if each.by is not None), decisions[0])


_NO_REMEDY = "No rule can allow it: sandboxes may not reach it."


def _tunnel(allow: Sequence[Rule], deny: Sequence[Rule], host: Host, port: int) -> Decision:
    """Decides about a tunnel by the rules about its host and port."""
    inspect = any(rule.inspect for rule in (*allow, *deny))
    for rule in deny:
        if not rule.partial:
            return _denied(rule, host, port)
        if not inspect:
            return _not_inspected(f"deny {rule}", rule)
    for rule in sorted(allow, key=lambda each: each.inspect, reverse=True):
        if inspect or not rule.partial:
            return replace(_allowed(rule), inspect=inspect)
    if not allow:
        return _not_listed(host, port, None)
    return _not_inspected(NOT_INSPECTED, allow[0])


def _not_inspected(name: str, rule: Rule) -> Decision:
    return Decision(
        False,
        name,
        f"the rule {rule} is about methods or paths, which can't be seen in TLS",
        "The operator can add `inspect = true` to the rule in the file of the permission level.",
        by=rule,
    )


def _not_listed(host: Host, port: int, requested: Requested | None) -> Decision:
    """The denial by no rule. `requested` is None if no rule is about the host."""
    if requested is None:
        return Decision(
            False, NOT_LISTED, f"no rule allows {host} at port {port}", _remedy(host, port)
        )
    if requested.plain is None:
        why = f"no rule about methods or paths can allow the request, because {requested.why}"
        return Decision(False, NOT_LISTED, why, "Send it in its usual form.")
    path = requested.plain[:_MOST_SHOWN]
    return Decision(
        False,
        NOT_LISTED,
        f"no rule allows {requested.method} {path} at {host}, port {port}",
        _remedy(
            host,
            port,
            f"methods = [{json.dumps(requested.method)}]",
            f"paths = [{json.dumps(path, ensure_ascii=False)}]",
        ),
    )


def _not_by(host: Host, port: int, program: str) -> Decision:
    """The denial of a program that is in none of the rules about the host."""
    who = "a program that is not known" if program == UNKNOWN else program
    return Decision(
        False,
        NOT_LISTED,
        f"the rules about {host} at port {port} are for other programs than {who}",
        "The operator can add the program to `programs` of the rule in the file of the permission "
        "level.",
    )


def _remedy(host: Host, port: int, *more: str) -> str:
    """How the operator can allow what no rule allows yet."""
    if isinstance(host, str):
        fields = [f'host = "{host}"']
    else:
        found = special(host)
        if found is not None and not found.listable:
            return _NO_REMEDY
        fields = [f'cidr = "{host}/{host.max_prefixlen}"']
    if port not in WEB_PORTS:
        fields.append(f"ports = [{port}]")
    *first, last = [*fields, *more]
    rule = f"{', '.join(first)} and {last}" if first else last
    return (
        f"The operator can add an `[[egress.allow]]` rule with {rule} to the file of the "
        "permission level."
    )


def _allowed(rule: Rule) -> Decision:
    return Decision(True, f"allow {rule}", by=rule)


def _denied(rule: Rule, host: Host, port: int) -> Decision:
    return Decision(
        False,
        f"deny {rule}",
        f"a rule denies {host} at port {port}",
        "The operator can change the `[[egress.deny]]` rule in the file of the permission level.",
        by=rule,
    )


def _stored(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    return [
        {
            "host": rule.host,
            "cidr": rule.cidr,
            "ports": list(rule.ports),
            "methods": list(rule.methods),
            "paths": [str(glob) for glob in rule.paths],
            "inspect": rule.inspect,
            "upgrade": rule.upgrade,
            "programs": list(rule.programs),
        }
        for rule in rules
    ]


def _restored(values: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            each["host"],
            None if each["cidr"] is None else ipaddress.ip_network(each["cidr"]),
            tuple(each["ports"]),
            tuple(each.get("methods", ())),
            tuple(map(Glob, each.get("paths", ()))),
            each.get("inspect", False),
            each.get("upgrade", False),
            tuple(each.get("programs", ())),
        )
        for each in values
    )
