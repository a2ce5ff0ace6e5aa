"""One level file: its allowed contents, and the places of its errors."""

import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    ValidationError,
)

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.egress.egress_table import EgressTable
from orchestrator.rules.policy import toml_lines
from orchestrator.settings.operator_mounts import MountName
from orchestrator.settings.schema_errors import reason
from orchestrator.settings.values import IMAGE_PATTERN, RUNTIME_PATTERN
from paddock.contract.words import LEVEL_NAMES, IdleAction
from sandbox_agent.decide.facilities import FLAGS, WAIVABLE

_MIB = 1024 * 1024
# The default and the maximum of a session's recorded bytes.
DEFAULT_AUDIT_BYTES = 256 * _MIB
MOST_AUDIT_BYTES = 1024 * 1024 * _MIB
# Below these values, a sandbox's own agent or the engine would not work.
MINIMUMS: dict[str, float] = {
    "cpus": 0.05,
    "memory_bytes": 64 * _MIB,
    "pids": 16,
    "tmp_bytes": _MIB,
    "workspace_bytes": 16 * _MIB,
}
# A slower disk delays its own file system's journal, and a slower network delays a whole packet.
LEAST_DISK_RATE = _MIB
LEAST_NETWORK_RATE = 16 * 1024
MOST_RATE = 4_000_000_000
NetworkMode = Literal["none", "egress", "open"]
# Whom commands see themselves as.
CommandUser = Literal["sandbox", "root"]
# Where the events that begin and end a session are durable before the answer is given.
Durability = Literal["node", "cluster"]
# A smaller file system has no room for what a package manager keeps.
LEAST_ROOT_BYTES = 64 * _MIB
RiskTier = Literal["info", "low", "medium", "high", "critical"]
# Landlock's first version has rules for paths; for what later ones add there are substitutes.
_PATHS_ABI = 1
# Views of the kernel: the confinement decides what may be read there, and no level does.
_KERNEL_PATHS = ("/proc", "/sys", "/run")

# The sandbox sets these variables of commands; their values are part of its confinement.
_OWN_VARIABLES = frozenset({"PATH", "HOME", "USER", "LOGNAME"})
_PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "no_proxy"})


def _any_is_none(value: Any) -> Any:
    return None if value == "any" else value


def _listed(value: Any) -> Any:
    if value is not None and not isinstance(value, list):
        raise ValueError('must be a list, or "any"')
    return value


def _command(value: str) -> str:
    if "/" in value:
        raise ValueError("must be a bare name, without a path")
    return value


def _settable(value: str) -> str:
    if value in _OWN_VARIABLES or value.lower() in _PROXY_VARIABLES:
        raise ValueError("is set by the sandbox itself")
    return value


def _waivable(value: str) -> str:
    if value not in WAIVABLE:
        raise ValueError(f"must be {'|'.join(WAIVABLE)}")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("must be an absolute path")
    if value == "/":
        raise ValueError("must not be the whole image")
    if posixpath.normpath(value) != value or value.startswith("//") or not value.isprintable():
        raise ValueError("must be a path without `.`, `..` and unnecessary slashes")
    if any(value == path or value.startswith(path + "/") for path in _KERNEL_PATHS):
        raise ValueError(f"must not be below {', '.join(_KERNEL_PATHS)}")
    return value


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


_Command = Annotated[
    str, AfterValidator(_command), StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$")
]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")]
_Name = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128),
    AfterValidator(_settable),
]
_Value = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=4096)]
_Path = Annotated[str, AfterValidator(_absolute)]
_Image = Annotated[str, StringConstraints(pattern=f"^{IMAGE_PATTERN}$")]
_Runtime = Annotated[str, StringConstraints(pattern=f"^{RUNTIME_PATTERN}$")]
# `None` stands for `"any"`. TOML has no null, so both forms have the same place in an error.
_Commands = Annotated[
    list[_Command] | None, BeforeValidator(_listed), BeforeValidator(_any_is_none)
]
_Variables = Annotated[
    list[_Variable] | None, BeforeValidator(_listed), BeforeValidator(_any_is_none)
]


class RequiresTable(_Table):
    """What the host must provide, and which facilities its kernel and runtime may lack."""

    landlock: int = Field(ge=0, le=1000)
    seccomp: bool
    mounts: bool
    quota: bool = False
    without: list[Annotated[str, AfterValidator(_waivable)]] = []


class LevelConfinementTable(_Table):
    """The kernel's confinement of commands."""

    paths: bool
    read: list[_Path] = []
    execute: list[_Path] = []
    writable_code: bool
    ptrace: bool = False
    record_execs: bool = True


class TimeoutTable(_Table):
    """Time-outs in seconds."""

    default: int = Field(ge=1)
    max: int = Field(ge=1)


class LimitsTable(_Table):
    """Limits of one session."""

    cpus: float = Field(ge=MINIMUMS["cpus"], le=1024, allow_inf_nan=False)
    memory_bytes: int = Field(ge=int(MINIMUMS["memory_bytes"]))
    pids: int = Field(ge=int(MINIMUMS["pids"]))
    tmp_bytes: int = Field(ge=int(MINIMUMS["tmp_bytes"]))
    shm_bytes: int = Field(ge=0)
    workspace_bytes: int = Field(ge=int(MINIMUMS["workspace_bytes"]))


class RatesTable(_Table):
    """The highest transfer rates of one session, in bytes per second."""

    disk_read: int | None = Field(default=None, ge=LEAST_DISK_RATE, le=MOST_RATE)
    disk_write: int | None = Field(default=None, ge=LEAST_DISK_RATE, le=MOST_RATE)
    network_receive: int | None = Field(default=None, ge=LEAST_NETWORK_RATE, le=MOST_RATE)
    network_send: int | None = Field(default=None, ge=LEAST_NETWORK_RATE, le=MOST_RATE)


class LevelTable(_Table):
    """A level file; `commands` and `environment` are None for any."""

    rank: int = Field(ge=0, le=1000)
    risk_tier: RiskTier
    commands: _Commands
    network: NetworkMode
    noexec: bool
    guard_writes: bool = True
    environment: _Variables
    home: Annotated[str, StringConstraints(pattern=r"^/[^\x00\n:]*$")]
    output_bytes: int = Field(ge=1024, le=64 * _MIB)
    audit_bytes: int = Field(default=DEFAULT_AUDIT_BYTES, ge=_MIB, le=MOST_AUDIT_BYTES)
    idle_action: Annotated[IdleAction, Strict(False)] = IdleAction.END
    durability: Durability = "node"
    approvers: int = Field(default=1, ge=1, le=8)
    mounts: Annotated[list[MountName], Field(max_length=16)] = []
    images: Annotated[list[_Image], Field(min_length=1, max_length=256)] | None = None
    runtime: _Runtime | None = None
    user: CommandUser = "sandbox"
    root_bytes: int | None = Field(default=None, ge=LEAST_ROOT_BYTES)
    requires: RequiresTable
    confinement: LevelConfinementTable
    timeout: TimeoutTable
    limits: LimitsTable
    rates: RatesTable = RatesTable()
    egress: EgressTable = EgressTable()
    variables: Annotated[dict[_Name, _Value], Field(max_length=64)] = {}


class LevelFile:
    """A parsed file; `error` makes an error about one of its fields."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError that names the file, the line and the field."""
        self.path = path
        self.text, values = toml_lines.read_document(path)
        try:
            self.table = LevelTable.model_validate(values)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False, include_context=False)
            # A misspelt field is more helpful to report than the field that is then missing.
            first = min(errors, key=lambda found: found["type"] == "missing")
            # If a name is wrong, instead of its value, the schema adds "[key]" to the place.
            place = tuple(part for part in first["loc"] if part != "[key]")
            raise self.error(place, reason(first["type"], first["msg"])) from None
        for field, message in _contradictions(self.table):
            raise self.error(field, message)
        if self.table.requires.without and path.stem in LEVEL_NAMES:
            raise self.error(
                ("requires", "without"),
                f"{path.stem} goes without nothing: give this level another name",
            )

        if self.table.user == "root" and path.stem in LEVEL_NAMES:
            raise self.error(
                ("user",), f"{path.stem} has no root inside: give this level another name"
            )

    def error(self, field: toml_lines.Field, message: str) -> ConfigError:
        """An error about a field, with its place."""
        line = toml_lines.line_of(self.text, field)
        name = ".".join(str(part) for part in field)
        return ConfigError(f"{self.path}:{line}: {name}: {message}")


def _contradictions(table: LevelTable) -> Iterator[tuple[toml_lines.Field, str]]:
    """Errors between fields that are valid separately."""
    confinement, requires = table.confinement, table.requires
    lists: dict[toml_lines.Field, Sequence[str]] = {
        ("commands",): table.commands or (),
        ("environment",): table.environment or (),
        ("mounts",): table.mounts,
        ("images",): table.images or (),
        ("confinement", "read"): confinement.read,
        ("confinement", "execute"): confinement.execute,
        ("requires", "without"): requires.without,
    }
    for field, items in lists.items():
        for index, item in enumerate(items):
            if item in items[:index]:
                yield (*field, index), f"{item} is in the list twice"
    if table.timeout.default > table.timeout.max:
        yield ("timeout", "default"), "is more than timeout.max"
    if confinement.paths and table.commands is None:
        yield (
            ("confinement", "paths"),
            'can be true only if commands are listed: with "any" there is nothing to confine to',
        )
    for name in ("network_receive", "network_send"):
        if table.network != "open" and getattr(table.rates, name) is not None:
            yield ("rates", name), 'has no effect without network = "open"'
    if table.network != "egress" and (table.egress.allow or table.egress.deny):
        yield ("egress",), 'has no effect without network = "egress"'
    for place, message in table.egress.contradictions():
        yield ("egress", *place), message
    if not table.guard_writes and table.commands is not None:
        yield ("guard_writes",), 'can be false only with commands = "any"'
    for name in ("read", "execute"):
        if getattr(confinement, name) and not confinement.paths:
            yield ("confinement", name), "has no effect without confinement.paths"
    if confinement.paths and requires.landlock < _PATHS_ABI:
        yield (
            ("requires", "landlock"),
            f"must be {_PATHS_ABI} or more with confinement.paths: the kernel's part of it",
        )
    if confinement.paths and "paths" in requires.without:
        yield ("requires", "without"), "can't name paths with confinement.paths"
    if confinement.record_execs and "notification" in requires.without:
        yield (
            ("requires", "without"),
            "can name notification only with confinement.record_execs = false",
        )
    if table.noexec and FLAGS in requires.without:
        yield ("requires", "without"), "can name flags only with noexec = false"
    yield from _root_contradictions(table)
    for name in ("seccomp", "mounts"):
        if not getattr(requires, name):
            yield ("requires", name), "must be true: no session runs without it"


def _root_contradictions(table: LevelTable) -> Iterator[tuple[toml_lines.Field, str]]:
    """Errors about root inside."""
    if table.user == "root":
        if table.commands is not None:
            yield ("user",), 'can be "root" only with commands = "any"'
        if {"paths", "scopes", "notification"} & set(table.requires.without):
            yield ("user",), 'can be "root" only where the level goes without nothing but flags'
    elif table.root_bytes is not None:
        yield ("root_bytes",), 'has no effect without user = "root"'
    if table.root_bytes is not None:
        if table.noexec:
            yield ("root_bytes",), "needs noexec = false: packages run programs of their own"
        if table.rates.disk_read is not None or table.rates.disk_write is not None:
            yield ("root_bytes",), "can't be had with a disk's rates, which it would not have"
