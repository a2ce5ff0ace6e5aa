"""The rules of the way out, and their decisions. Pure.

A request is denied unless a rule allows it; a rule that denies beats one that allows.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from orchestrator.egress.addresses import Network, special
from orchestrator.egress.hosts import Address, Host, plain

WEB_PORTS = (80, 443)
NOT_LISTED = "not-listed"
ADDRESS_REFUSED = "address-refused"


@dataclass(frozen=True, slots=True)
class Rule:
    """Hosts or addresses at certain ports.

    Either `host` is set, a name or `*.name` for all names below it, or `network` is. `ports` empty:
    every port.
    """

    host: str | None = None
    network: Network | None = None
    ports: tuple[int, ...] = ()

    def matches(self, host: Host, port: int) -> bool:
        """Whether it speaks of this host at this port. An address matches only networks."""
        if self.ports and port not in self.ports:
            return False
        if not isinstance(host, str):
            return self.contains(host)
        if self.host is None:
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host

    def contains(self, address: Address) -> bool:
        """Whether it lists the address."""
        network, address = self.network, plain(address)
        return network is not None and network.version == address.version and address in network

    @property
    def cidr(self) -> str | None:
        """The network as text."""
        return None if self.network is None else str(self.network)

    def __str__(self) -> str:
        """As events and answers name it."""
        ports = "" if not self.ports else ":" + ",".join(map(str, self.ports))
        return f"{self.host or self.network}{ports}"


@dataclass(frozen=True, slots=True)
class Decision:
    """`rule` names what decided; `why` and `remedy` are sentences, None if it is allowed."""

    allow: bool
    rule: str
    why: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What a session may reach."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    def decide(self, host: Host, port: int) -> Decision:
        """About a host as it was requested, before its addresses are known."""
        for rule in self.deny:
            if rule.matches(host, port):
                return _denied(rule, host, port)
        for rule in self.allow:
            if rule.matches(host, port):
                return Decision(True, f"allow {rule}")
        return Decision(
            False, NOT_LISTED, f"no rule allows {host} at port {port}", _remedy(host, port)
        )

    def decide_any_port(self, host: Host) -> Decision:
        """Whether it may be requested at some port."""
        ports = [port for rule in self.allow for port in rule.ports or WEB_PORTS]
        decisions = [self.decide(host, port) for port in dict.fromkeys([WEB_PORTS[-1], *ports])]
        return next((each for each in decisions if each.allow), decisions[0])

    def decide_address(self, address: Address, port: int) -> Decision:
        """About an address of a host that is allowed: it must be public, or listed."""
        for rule in self.deny:
            if rule.matches(address, port):
                return _denied(rule, address, port)
        found = special(address)
        listed = [rule for rule in self.allow if rule.matches(address, port)]
        if found is None or (found.listable and listed):
            return Decision(True, f"allow {listed[0]}" if listed else "public")
        remedy = _NO_REMEDY
        if found.listable:
            remedy = "The operator can list it as `cidr` of an `[[egress.allow]]` rule."
        return Decision(False, ADDRESS_REFUSED, f"{address} is a {found.kind} address", remedy)

    def stored(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"allow": _stored(self.allow), "deny": _stored(self.deny)}

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """What `stored` returned; an empty mapping has no rules."""
        return cls(_restored(values.get("allow", ())), _restored(values.get("deny", ())))


NO_RULES = Rules()
_NO_REMEDY = "No rule can allow it: sandboxes may not reach it."


def _remedy(host: Host, port: int) -> str:
    """How the operator can allow what no rule allows yet."""
    if isinstance(host, str):
        rule = f'host = "{host}"'
    else:
        found = special(host)
        if found is not None and not found.listable:
            return _NO_REMEDY
        rule = f'cidr = "{host}/{host.max_prefixlen}"'
    if port not in WEB_PORTS:
        rule += f" and ports = [{port}]"
    return (
        f"The operator can add an `[[egress.allow]]` rule with {rule} to the file of the "
        "permission level."
    )


def _denied(rule: Rule, host: Host, port: int) -> Decision:
    return Decision(
        False,
        f"deny {rule}",
        f"a rule denies {host} at port {port}",
        "The operator can change the `[[egress.deny]]` rule in the file of the permission level.",
    )


def _stored(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    return [
        {
            "host": rule.host,
            "cidr": rule.cidr,
            "ports": list(rule.ports),
        }
        for rule in rules
    ]


def _restored(values: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            each["host"],
            None if each["cidr"] is None else ipaddress.ip_network(each["cidr"]),
            tuple(each["ports"]),
        )
        for each in values
    )
