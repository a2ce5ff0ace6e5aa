"""The rule that would allow a denied request, and nothing more than is necessary. Pure."""

import ipaddress
import shlex

from orchestrator.rules.egress.outgoing_request import (
    UNKNOWN,
    Glob,
    Outgoing,
    check_glob,
    check_method,
)
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import WEB_PORTS, Rules
from orchestrator.settings.addresses import special


def missing_rule(rules: Rules, outgoing: Outgoing) -> Rule | None:
    """The rule that these rules lack; None if none can be proposed.

    If other rules are about the host, it has a method and a path, and the program if they name
    programs.
    """
    host, port, requested, program = outgoing
    ports = WEB_PORTS if port in WEB_PORTS else (port,)
    if not isinstance(host, str):
        found = special(host)
        if found is not None and not found.listable:
            return None
        return Rule(None, ipaddress.ip_network(host), ports)
    about = [rule for rule in rules.allow if rule.matches(host, port)]
    programs = (program,) if about and all(rule.programs for rule in about) else ()
    if UNKNOWN in programs:
        return None
    if requested is None or not any(rule.allows_by(program) for rule in about):
        return Rule(host, None, ports, programs=programs)
    if requested.plain is None or "*" in requested.plain:
        return None
    try:
        methods, path = (check_method(requested.method),), Glob(check_glob(requested.plain))
    except ValueError:
        return None
    return Rule(host, None, ports, methods, (path,), programs=programs)


def words_of(rule: Rule) -> str:
    """The arguments of `paddock egress allow` for the rule, which names at most one port."""
    place = rule.host or str(rule.network)
    if rule.ports not in ((), WEB_PORTS):
        place = f"[{place}]" if ":" in place else place
        place += f":{rule.ports[0]}"
    options = [f"--method {method}" for method in rule.methods]
    options += [f"--path {shlex.quote(str(path))}" for path in rule.paths]
    options += [f"--program {program}" for program in rule.programs]
    return " ".join((shlex.quote(place), *options))
