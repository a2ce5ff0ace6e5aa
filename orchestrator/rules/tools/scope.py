"""The permitted targets of tools: addresses, networks and domains of the operator's scope file."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.operator_files import read_toml
from sandbox_agent.decide.sanitize import INJECTION

MAX_TARGET = 253
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_HOSTNAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
# Spellings that inet_aton accepts as addresses: 0x7f.1, 2130706433, 010.0.0.1.
_NUMERIC = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]*|[0-9]+))*\.?")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TargetError(ValueError):
    """A text that is not a target; the message says why."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The targets in scope. If the file can't be used, `problem` says why nothing is in scope."""

    networks: tuple[Network, ...] = ()
    domains: tuple[str, ...] = ()
    excluded_networks: tuple[Network, ...] = ()
    excluded_domains: tuple[str, ...] = ()
    problem: str | None = None

    def refusal(self, target: str) -> str | None:
        """Why a target is out of scope; None if it is in scope. Exclusions take precedence."""
        if self.problem is not None:
            return self.problem
        try:
            parsed = parse_target(target)
        except TargetError as error:
            return f"{target[:MAX_TARGET]!r} is not a target: {error}"
        if isinstance(parsed, str):
            return self._domain_refusal(parsed)
        return self._network_refusal(parsed)

    def _network_refusal(self, target: Network) -> str | None:
        target = _unmapped(target)
        for network in self.excluded_networks:
            if target.version == network.version and target.overlaps(network):
                return f"{target} is excluded by {network}"
        if any(_inside(target, network) for network in self.networks):
            return None
        return f"{target} is not in scope"

    def _domain_refusal(self, target: str) -> str | None:
        for domain in self.excluded_domains:
            if _covers(domain, target):
                return f"{target} is excluded by {domain}"
        if any(_covers(domain, target) for domain in self.domains):
            return None
        return f"{target} is not in scope"


NO_SCOPE = Scope(problem="no scope file is configured, so no target is in scope")


def parse_target(text: str) -> Network | str:
    """An address or network as a network, a hostname in lower case. Raises: TargetError."""
    if not text or text != text.strip():
        raise TargetError("it is empty, or has white space around it")
    if len(text) > MAX_TARGET:
        raise TargetError(f"it has more than {MAX_TARGET} characters")
    if not text.isascii():
        raise TargetError("only ASCII is allowed")
    if bad := sorted(set(text) & (INJECTION | set("*?%\\"))):
        raise TargetError(f"{' '.join(bad)} may not be in it")
    if ".." in text:
        raise TargetError(".. may not be in it")
    if "/" in text and not text.rpartition("/")[2].isdigit():
        raise TargetError("/ may only precede a network's length, as in 10.0.0.0/8")
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return _hostname(text)


def load_scope(path: Path | None) -> Scope:
    """The scope file's content. An unusable file puts nothing in scope."""
    if path is None:
        return NO_SCOPE
    try:
        return _parse(path)
    except ConfigError as error:
        return Scope(problem=f"the scope file can't be used: {error}")


def _parse(path: Path) -> Scope:
    table = read_toml(path)
    for name in table.keys() - {"scope"}:
        raise ConfigError(f"{path}: {name}: is not a known field")
    scope = table.get("scope")
    if not isinstance(scope, dict):
        raise ConfigError(f"{path}: scope: must be a table, [scope]")
    for name in scope.keys() - {"targets", "domains", "exclude"}:
        raise ConfigError(f"{path}: scope.{name}: is not a known field")
    networks, names = _entries(path, "targets", scope)
    if names:
        raise ConfigError(f"{path}: scope.targets: {names[0]} is not an address or network")
    more, domains = _entries(path, "domains", scope)
    if more:
        raise ConfigError(f"{path}: scope.domains: {more[0]} is not a domain")
    excluded, excluded_domains = _entries(path, "exclude", scope)
    mapped = tuple(_mapped(network) for network in excluded if network.version == 4)
    return Scope(networks, domains, excluded + mapped, excluded_domains)


def _entries(
    path: Path, name: str, table: dict[str, object]
) -> tuple[tuple[Network, ...], tuple[str, ...]]:
    """The networks and the domains of a list; a domain may begin with `*.`."""
    values = table.get(name, [])
    if not isinstance(values, list):
        raise ConfigError(f"{path}: scope.{name}: must be an array")
    networks: list[Network] = []
    domains: list[str] = []
    for value in values:
        if not isinstance(value, str):
            raise ConfigError(f"{path}: scope.{name}: {value!r} must be a string")
        wildcard = value.startswith("*.")
        try:
            parsed = parse_target(value.removeprefix("*."))
        except TargetError as error:
            raise ConfigError(f"{path}: scope.{name}: {value!r}: {error}") from None
        if isinstance(parsed, str):
            domains.append(f"*.{parsed}" if wildcard else parsed)
        elif wildcard:
            raise ConfigError(f"{path}: scope.{name}: {value!r}: *. may only precede a domain")
        else:
            networks.append(_unmapped(parsed))
    return tuple(networks), tuple(domains)


def _hostname(text: str) -> str:
    if not _HOSTNAME.fullmatch(text):
        raise TargetError("it is not an address, network or hostname")
    if _NUMERIC.fullmatch(text):
        raise TargetError("addresses are written with four decimal numbers")
    name = text.lower().removesuffix(".")
    if any(label.startswith("xn--") for label in name.split(".")):
        raise TargetError("internationalised names (xn--) are not allowed")
    return name


def _covers(domain: str, name: str) -> bool:
    """`*.example.com` covers every name below example.com, but not example.com itself."""
    if domain.startswith("*."):
        return name.endswith(domain[1:])
    return name == domain


def _inside(target: Network, network: Network) -> bool:
    if isinstance(target, ipaddress.IPv4Network):
        return isinstance(network, ipaddress.IPv4Network) and target.subnet_of(network)
    return isinstance(network, ipaddress.IPv6Network) and target.subnet_of(network)


def _unmapped(network: Network) -> Network:
    """::ffff:10.0.0.1 is another spelling of 10.0.0.1."""
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def _mapped(network: Network) -> Network:
    """The IPv6 spelling, which a wide IPv6 network may contain."""
    return ipaddress.IPv6Network(f"::ffff:{network.network_address}/{network.prefixlen + 96}")
