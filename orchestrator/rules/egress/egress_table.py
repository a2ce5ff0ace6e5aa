"""The rules of the way out in a level file."""

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from orchestrator.rules.egress.outgoing_request import Glob, check_glob, check_method, check_program
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import WEB_PORTS, Rules
from orchestrator.settings.addresses import unlistable
from orchestrator.settings.hosts import HostError, parse_host

_MOST_RULES = 1000
_MOST_PORTS = 64
_MOST_PARTS = 64


def _host(value: str) -> str:
    below = value.startswith("*.")
    try:
        name = parse_host(value[2:] if below else value)
    except HostError as error:
        raise ValueError(f"must be a host or *.domain: {error}") from None
    if not isinstance(name, str):
        raise ValueError("must be a name: list addresses with cidr")
    if below and "." not in name:
        raise ValueError("must not be a whole top-level domain")
    return f"*.{name}" if below else name


def _cidr(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f"must be a network such as 192.0.2.0/24: {error}") from None


def _listable(value: str) -> str:
    kind = unlistable(ipaddress.ip_network(value))
    if kind is not None:
        raise ValueError(f"has {kind} addresses, which no sandbox may reach")
    return value


_Host = Annotated[str, AfterValidator(_host)]
_Cidr = Annotated[str, AfterValidator(_cidr)]
_Ports = Annotated[
    list[Annotated[int, Field(ge=1, le=65535)]], Field(min_length=1, max_length=_MOST_PORTS)
]


_Methods = Annotated[
    list[Annotated[str, AfterValidator(check_method)]],
    Field(min_length=1, max_length=_MOST_PARTS),
]
_Paths = Annotated[
    list[Annotated[str, AfterValidator(check_glob)]], Field(min_length=1, max_length=_MOST_PARTS)
]


_Programs = Annotated[
    list[Annotated[str, AfterValidator(check_program)]],
    Field(min_length=1, max_length=_MOST_PARTS),
]


class _RuleTable(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    methods: _Methods | None = None
    paths: _Paths | None = None
    inspect: bool = False
    programs: _Programs | None = None


class AllowTable(_RuleTable):
    """Hosts or addresses that may be reached, by default at the ports of the web."""

    host: _Host | None = None
    cidr: Annotated[_Cidr, AfterValidator(_listable)] | None = None
    ports: _Ports = list(WEB_PORTS)
    upgrade: bool = False


class DenyTable(_RuleTable):
    """Hosts or addresses that may not be reached, by default at any port."""

    host: _Host | None = None
    cidr: _Cidr | None = None
    ports: _Ports | None = None


class EgressTable(BaseModel):
    """All rules; what none of them allows is denied."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    allow: Annotated[list[AllowTable], Field(max_length=_MOST_RULES)] = []
    deny: Annotated[list[DenyTable], Field(max_length=_MOST_RULES)] = []

    def contradictions(self) -> Iterator[tuple[tuple[str, int], str]]:
        """The place of each rule whose fields contradict each other, and a message."""
        lists: dict[str, Sequence[AllowTable | DenyTable]] = {
            "allow": self.allow,
            "deny": self.deny,
        }
        for kind, tables in lists.items():
            for index, table in enumerate(tables):
                if message := _contradiction(table):
                    yield (kind, index), message

    def rules(self) -> Rules:
        """The same rules for decisions."""
        return Rules(tuple(map(_rule, self.allow)), tuple(map(_rule, self.deny)))


def _contradiction(table: AllowTable | DenyTable) -> str | None:
    if (table.host is None) == (table.cidr is None):
        return "must have either host or cidr"
    names = ("methods", "paths", "inspect", "upgrade", "programs")
    parts = [name for name in names if getattr(table, name, False)]
    if parts and table.host is None:
        return f"{parts[0]} needs host"
    if "upgrade" in parts and 80 in (table.ports or ()) and 443 not in (table.ports or ()):
        return "upgrade needs port 443, to which requests to port 80 go"
    if isinstance(table, DenyTable) and parts == ["inspect"]:
        return "inspect needs methods or paths: without them it denies every connection"
    return None


def _rule(table: AllowTable | DenyTable) -> Rule:
    network = None if table.cidr is None else ipaddress.ip_network(table.cidr)
    return Rule(
        table.host,
        network,
        tuple(table.ports or ()),
        tuple(table.methods or ()),
        tuple(map(Glob, table.paths or ())),
        table.inspect,
        isinstance(table, AllowTable) and table.upgrade,
        tuple(table.programs or ()),
    )
