"""Rules of the way out as text."""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from paddock.contract.system import EgressRule

# Narrows a new session's way out.
Reached = Annotated[
    list[str] | None,
    typer.Option(
        "--reach",
        metavar="HOST[:PORT]",
        help="Of what the level allows, reach only this: a host, *.domain, or a network.",
    ),
]


def narrowing(reached: Sequence[str] | None) -> dict[str, Any] | None:
    """What `--reach` says, as a request for a session has it. Raises: typer.BadParameter."""
    if not reached:
        return None
    return {"allow": [rule_of(place, hint="--reach") for place in reached]}


def rules_text(rules: "Iterable[EgressRule]") -> str | None:
    """The rules as answers of the way out name them; None if there are none."""
    return "; ".join(map(rule_text, rules)) or None


def rule_text(rule: "EgressRule") -> str:
    """One rule."""
    ports = f":{','.join(map(str, rule.ports))}" if rule.ports else ""
    by = f"by {','.join(rule.programs)}" if rule.programs else ""
    notes = [by, "(inspected)" if rule.inspect else "", "(upgraded)" if rule.upgrade else ""]
    parts = [f"{rule.host or rule.cidr}{ports}", ",".join(rule.methods), *rule.paths, *notes]
    return " ".join(part for part in parts if part)


def rule_of(
    place: str,
    methods: Sequence[str] | None = None,
    paths: Sequence[str] | None = None,
    programs: Sequence[str] | None = None,
    hint: str = "HOST[:PORT]",
) -> dict[str, Any]:
    """A rule for `HOST[:PORT]`; `hint` names the parameter. Raises: typer.BadParameter."""
    host, port = _parts(place)
    rule: dict[str, Any] = {"cidr": host} if _is_network(host) else {"host": host}
    if port is not None:
        if not port.isascii() or not port.isdigit():
            raise typer.BadParameter(f"{place}: {port!r} is not a port", param_hint=hint)
        rule["ports"] = [int(port)]
    if methods:
        rule["methods"] = list(methods)
    if paths:
        rule["paths"] = list(paths)
    if programs:
        rule["programs"] = list(programs)
    return rule


def _parts(place: str) -> tuple[str, str | None]:
    """The host and the port; an IPv6 address with a port is in brackets."""
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        return host, rest.removeprefix(":") or None
    host, _, port = place.partition(":")
    return (place, None) if ":" in port else (host, port or None)


def _is_network(host: str) -> bool:
    try:
        ipaddress.ip_network(host)
    except ValueError:
        return "/" in host
    return True
