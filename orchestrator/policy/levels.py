"""Permission levels: what a session at low, medium or high may do and use."""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic import ValidationError as SchemaError

from orchestrator.config import ConfigError
from orchestrator.engine.base import Limits
from orchestrator.errors import ValidationError
from sandbox_agent.protocol import Confinement

# In order of rank, lowest first.
LEVEL_NAMES = ("low", "medium", "high")
DEFAULT_LEVEL = "medium"
_PACKAGED = Path(__file__).with_name("levels")
_MIB = 1024 * 1024

# Below these a sandbox's own agent, the engine, or a workspace's file system would not work.
_MINIMUMS: dict[str, float] = {
    "cpus": 0.05,
    "memory_bytes": 64 * _MIB,
    "pids": 16,
    "tmp_bytes": _MIB,
    "workspace_bytes": 16 * _MIB,
}


class LevelError(ConfigError):
    """A level file that can't be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class SessionLimits(Limits):
    """What one session may use: its sandbox's limits and its workspace's size in bytes."""

    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Level:
    """One permission level, as its file has it."""

    name: str
    rank: int  # 0 is the lowest
    commands: frozenset[str] | None  # None: any command
    network: Literal["none", "open"]
    limits: SessionLimits
    timeout_default: int  # seconds
    timeout_max: int
    output_bytes: int  # kept per command
    noexec: bool  # nothing in the workspace or /tmp can be executed
    environment: tuple[str, ...] | None  # names, or prefixes ending in `*`; None: any
    confinement: Confinement
    home: str
    sha256: str  # of the file

    def public(self) -> dict[str, Any]:
        """The level as a plain object; `commands` and `environment` are null for "any"."""
        return {
            "name": self.name,
            "rank": self.rank,
            "commands": None if self.commands is None else sorted(self.commands),
            "network": self.network,
            "limits": asdict(self.limits),
            "timeout_default": self.timeout_default,
            "timeout_max": self.timeout_max,
            "output_bytes": self.output_bytes,
            "noexec": self.noexec,
            "environment": None if self.environment is None else list(self.environment),
            "confinement": self.confinement._asdict(),
            "home": self.home,
            "sha256": self.sha256,
        }


class Levels(Mapping[str, Level]):
    """The levels in force, by name. They are replaced all at once; sessions keep their own."""

    def __init__(self, levels: Mapping[str, Level]) -> None:
        self._levels = dict(levels)

    def __getitem__(self, name: str) -> Level:
        return self._levels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._levels)

    def __len__(self) -> int:
        return len(self._levels)

    def replace(self, levels: Mapping[str, Level]) -> None:
        """From now on these are in force."""
        self._levels = dict(levels)


def load_levels(directory: Path | None = None) -> dict[str, Level]:
    """The three levels by name, lowest first.

    A file of the same name in `directory` replaces the packaged one as a whole.
    Raises: LevelError naming the file and the field.
    """
    if directory is not None:
        _check_directory(directory)
    levels = {}
    for rank, name in enumerate(LEVEL_NAMES):
        path = _PACKAGED / f"{name}.toml"
        if directory is not None and (directory / path.name).exists():
            path = directory / path.name
        levels[name] = _load(path, name, rank)
    return levels


def effective_limits(level: Level, requested: Mapping[str, Any]) -> SessionLimits:
    """The level's limits, lowered where the session asked for less.

    Raises: ValidationError naming `limits.<field>` when it is unknown, no number, over
    the level's or too small for a sandbox to work.
    """
    values = asdict(level.limits)
    for name, value in requested.items():
        values[name] = _lowered(name, value, values.get(name, 0))
    return _fitting(values)


def clamped_limits(level: Level, requested: Mapping[str, int | float]) -> SessionLimits:
    """What a session that asked for less gets at this level: the lower of the two."""
    values = asdict(level.limits)
    return _fitting({**values, **{k: min(v, values[k]) for k, v in requested.items()}})


def _fitting(values: dict[str, Any]) -> SessionLimits:
    """Temporary files and shared memory take memory: even full, they leave half of it free."""
    quarter = values["memory_bytes"] // 4
    for name in ("tmp_bytes", "shm_bytes"):
        values[name] = min(values[name], quarter)
    return SessionLimits(**values)


def _lowered(name: str, value: Any, most: float) -> float:
    field = f"limits.{name}"
    least = _MINIMUMS.get(name)
    if least is None:
        raise ValidationError(f"{field} is not one of {', '.join(_MINIMUMS)}", field=field)
    fraction = name == "cpus"
    if isinstance(value, bool) or not isinstance(value, int | float if fraction else int):
        kind = "a number" if fraction else "an integer"
        raise ValidationError(f"{field} must be {kind}", field=field)
    if not least <= value <= most:
        raise ValidationError(
            f"{field} must be between {least} and the level's {most}", field=field
        )
    return float(value) if fraction else int(value)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


_Command = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$")]
_Path = Annotated[str, StringConstraints(pattern=r"^(/[^/\x00\n]+)+$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")]


class _LimitsTable(_Table):
    cpus: float = Field(ge=_MINIMUMS["cpus"], le=1024, allow_inf_nan=False)
    memory_bytes: int = Field(ge=int(_MINIMUMS["memory_bytes"]))
    pids: int = Field(ge=int(_MINIMUMS["pids"]))
    tmp_bytes: int = Field(ge=int(_MINIMUMS["tmp_bytes"]))
    shm_bytes: int = Field(ge=0)
    workspace_bytes: int = Field(ge=int(_MINIMUMS["workspace_bytes"]))


class _ConfinementTable(_Table):
    paths: bool
    read: list[_Path] = []
    execute: list[_Path] = []
    writable_code: bool
    ptrace: bool = False
    record_execs: bool = True


class _TimeoutTable(_Table):
    default: int = Field(ge=1)
    max: int = Field(ge=1)


class _LevelTable(_Table):
    commands: list[_Command] | Literal["any"]
    network: Literal["none", "open"]
    noexec: bool
    confinement: _ConfinementTable
    environment: list[_Variable] | Literal["any"]
    home: Annotated[str, StringConstraints(pattern=r"^/[^\x00\n:]*$")]
    output_bytes: int = Field(ge=1024, le=64 * _MIB)
    timeout: _TimeoutTable
    limits: _LimitsTable


def _check_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise LevelError(f"{directory}: is not a directory")
    for path in directory.glob("*.toml"):
        if path.stem not in LEVEL_NAMES:
            raise LevelError(f"{path}: levels are {', '.join(LEVEL_NAMES)}")


def _load(path: Path, name: str, rank: int) -> Level:
    try:
        data = path.read_bytes()
        table = _LevelTable.model_validate(tomllib.loads(data.decode()))
    except OSError as error:
        raise LevelError(f"{path}: {error.strerror}") from None
    except SchemaError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise LevelError(f"{path}: {field}: {first['msg']}") from None
    except ValueError as error:
        raise LevelError(f"{path}: {error}") from None
    if table.timeout.default > table.timeout.max:
        raise LevelError(f"{path}: timeout.default: is over timeout.max")
    return Level(
        name=name,
        rank=rank,
        commands=None if table.commands == "any" else frozenset(table.commands),
        network=table.network,
        limits=SessionLimits(**table.limits.model_dump()),
        timeout_default=table.timeout.default,
        timeout_max=table.timeout.max,
        output_bytes=table.output_bytes,
        noexec=table.noexec,
        environment=None if table.environment == "any" else tuple(table.environment),
        confinement=Confinement(**table.confinement.model_dump()),
        home=table.home,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def restore_level(public: Mapping[str, Any]) -> Level:
    """The level that `Level.public` described: what a session was pinned to."""
    commands, environment = public["commands"], public["environment"]
    return Level(
        **{
            **public,
            "commands": None if commands is None else frozenset(commands),
            "environment": None if environment is None else tuple(environment),
            "confinement": Confinement(**public["confinement"]),
            "limits": SessionLimits(**public["limits"]),
        }
    )
