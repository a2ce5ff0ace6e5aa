"""Permission levels: what a session may do and use.

Three are packaged; an operator can add more.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ValidationError
from orchestrator.host.engine.base import NO_RATES, Limits, Rates
from orchestrator.host.node.requirements import Requirements
from orchestrator.rules.egress.rules import NO_RULES, Rules
from orchestrator.rules.policy.level_checks import check_files
from orchestrator.rules.policy.level_file import (
    DEFAULT_AUDIT_BYTES,
    MINIMUMS,
    CommandUser,
    Durability,
    LevelFile,
    NetworkMode,
    RiskTier,
)
from orchestrator.settings.operator_files import table_files
from paddock.contract.words import LEVEL_NAMES, LEVEL_PATTERN, IdleAction
from sandbox_agent.decide.protocol import Confinement
from sandbox_agent.decide.writable_places import LAYER

# The user of commands that are root inside; see `Level.user`.
ROOT = "root"
# The level of a session that names none.
DEFAULT_LEVEL = "medium"
# The packaged level files. A level's name is its file's name without `.toml`.
_PACKAGED = Path(__file__).with_name("levels")


@dataclass(frozen=True, slots=True)
class SessionLimits(Limits):
    """Limits of one session: its sandbox's limits, and its workspace's size in bytes."""

    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Level:
    """One permission level, as in its file."""

    name: str
    rank: int  # the order of levels; a lower rank is a lower level
    risk_tier: RiskTier  # the highest tier of a tool's command
    commands: frozenset[str] | None  # None: any command
    network: NetworkMode
    limits: SessionLimits
    timeout_default: int  # in seconds
    timeout_max: int
    output_bytes: int  # kept per command
    audit_bytes: int  # of one session in the ledger
    noexec: bool  # nothing in the workspace or /tmp can be executed
    environment: tuple[str, ...] | None  # names, or prefixes ending in `*`; None: any
    requires: Requirements
    confinement: Confinement
    home: str
    mounts: tuple[str, ...]  # names on the operator's list that each session gets
    sha256: str  # the digest of the file
    # For levels that allow any command: well-known commands may write to the workspace only.
    guard_writes: bool = True
    rates: Rates = NO_RATES
    # What it may reach with `network = "egress"`.
    egress: Rules = NO_RULES
    # What commands have in their environment, unless a request or a secret sets it.
    variables: tuple[tuple[str, str], ...] = ()
    # The images that its sessions may have, by name or short name; None: any on the list.
    images: tuple[str, ...] | None = None
    # The engine's runtime of its sandboxes; None: that of the settings, or the engine's default.
    runtime: str | None = None
    # What happens to its idle sessions, unless they ask for something else.
    idle_action: IdleAction = IdleAction.END
    # Where its sessions' start and end are durable before the answer: here, or in the cluster, too.
    durability: Durability = "node"
    # Whom its commands see themselves as: the session's user, or uid 0 of a user namespace.
    user: CommandUser = "sandbox"
    # The size of the writable layer over the image, which only root inside may have; None: none.
    root_bytes: int | None = None
    # How many people must approve a line of a tool, none of whom asked if there are several.
    approvers: int = 1

    @property
    def layer(self) -> tuple[str, ...]:
        """The directories of the image that its commands may write to, where the image has them."""
        return () if self.root_bytes is None else LAYER

    def offline(self) -> "Level":
        """The same level without a network."""
        rates = replace(self.rates, network_receive=None, network_send=None)
        return replace(self, network="none", egress=NO_RULES, rates=rates)

    def stored(self) -> dict[str, Any]:
        """What the store keeps, as JSON has it; `commands` and `environment` are None for any."""
        return {
            "name": self.name,
            "rank": self.rank,
            "risk_tier": self.risk_tier,
            "commands": None if self.commands is None else sorted(self.commands),
            "network": self.network,
            "limits": asdict(self.limits),
            "timeout_default": self.timeout_default,
            "timeout_max": self.timeout_max,
            "output_bytes": self.output_bytes,
            "audit_bytes": self.audit_bytes,
            "noexec": self.noexec,
            "environment": None if self.environment is None else list(self.environment),
            "requires": {**asdict(self.requires), "without": list(self.requires.without)},
            "confinement": self.confinement._asdict(),
            "home": self.home,
            "mounts": list(self.mounts),
            "guard_writes": self.guard_writes,
            "rates": asdict(self.rates),
            "egress": self.egress.stored(),
            "variables": dict(self.variables),
            "images": None if self.images is None else list(self.images),
            "runtime": self.runtime,
            "idle_action": self.idle_action,
            "durability": self.durability,
            "user": self.user,
            "root_bytes": self.root_bytes,
            "approvers": self.approvers,
            "sha256": self.sha256,
        }


class Levels(Mapping[str, Level]):
    """The levels in force by name, lowest first.

    They are all replaced at once; sessions keep their own level.
    """

    def __init__(self, levels: Mapping[str, Level]) -> None:
        self._levels = dict(levels)
        self._subscribers: list[Callable[[], None]] = []

    def on_change(self, subscriber: Callable[[], None]) -> None:
        """Subscribes to replacements."""
        self._subscribers.append(subscriber)

    def named(self, name: str) -> Level:
        """The level with that name. Raises: ValidationError, also if its file was just removed."""
        if name not in self._levels:
            field = "permission_level"
            raise ValidationError(f"{field} must be {'|'.join(self)}", field=field)
        return self._levels[name]

    def __getitem__(self, name: str) -> Level:
        return self._levels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._levels)

    def __len__(self) -> int:
        return len(self._levels)

    def replace(self, levels: Mapping[str, Level]) -> None:
        """Puts these levels in force."""
        self._levels = dict(levels)
        for subscriber in self._subscribers:
            subscriber()


def load_levels(
    directory: Path | None = None,
    runtimes: Collection[str] | None = None,
    *,
    cluster: bool = False,
) -> dict[str, Level]:
    """The packaged levels and those of `directory` by name, lowest first.

    A file there with the name of a packaged level replaces it completely. `runtimes` are those that
    the engine has; None: it was not asked. `cluster`: this machine is a node of one. Raises:
    ConfigError that names the file, the line and the field, also if the directory can't be listed.
    """
    paths = {name: _PACKAGED / f"{name}.toml" for name in LEVEL_NAMES}
    if directory is not None:
        paths |= {_level_name(path): path for path in table_files(directory)}
    files = {name: LevelFile(path) for name, path in paths.items()}
    check_files(files, runtimes, packaged=_PACKAGED, cluster=cluster)
    return {
        name: _level(name, file)
        for name, file in sorted(files.items(), key=lambda item: item[1].table.rank)
    }


def _level_name(path: Path) -> str:
    if not re.fullmatch(LEVEL_PATTERN, path.stem):
        raise ConfigError(
            f"{path}: a level's name begins with a lower-case letter and has at most 32 characters "
            "of a-z 0-9 -"
        )
    return path.stem


def _level(name: str, file: LevelFile) -> Level:
    table = file.table
    return Level(
        name=name,
        rank=table.rank,
        risk_tier=table.risk_tier,
        commands=None if table.commands is None else frozenset(table.commands),
        network=table.network,
        limits=SessionLimits(**table.limits.model_dump()),
        timeout_default=table.timeout.default,
        timeout_max=table.timeout.max,
        output_bytes=table.output_bytes,
        audit_bytes=table.audit_bytes,
        noexec=table.noexec,
        environment=None if table.environment is None else tuple(table.environment),
        requires=_requirements(table.requires.model_dump()),
        confinement=Confinement(**table.confinement.model_dump()),
        home=table.home,
        mounts=tuple(table.mounts),
        guard_writes=table.guard_writes,
        rates=Rates(**table.rates.model_dump()),
        egress=table.egress.rules(),
        variables=tuple(table.variables.items()),
        images=None if table.images is None else tuple(table.images),
        runtime=table.runtime,
        idle_action=table.idle_action,
        durability=table.durability,
        approvers=table.approvers,
        user=table.user,
        root_bytes=table.root_bytes,
        sha256=hashlib.sha256(file.text.encode()).hexdigest(),
    )


def _requirements(members: Mapping[str, Any]) -> Requirements:
    return Requirements(**{**members, "without": tuple(members.get("without", ()))})


def restore_level(stored: Mapping[str, Any]) -> Level:
    """The level that `Level.stored` returned, to which a session is pinned."""
    commands, environment = stored["commands"], stored["environment"]
    images = stored.get("images")
    return Level(
        **{
            **stored,
            "commands": None if commands is None else frozenset(commands),
            "environment": None if environment is None else tuple(environment),
            "requires": _requirements(stored["requires"]),
            "confinement": Confinement(**stored["confinement"]),
            "limits": SessionLimits(**stored["limits"]),
            "mounts": tuple(stored.get("mounts", ())),
            "rates": Rates(**stored.get("rates", {})),
            "egress": Rules.restored(stored.get("egress", {})),
            "variables": tuple(stored.get("variables", {}).items()),
            "images": None if images is None else tuple(images),
            "audit_bytes": stored.get("audit_bytes", DEFAULT_AUDIT_BYTES),
            "idle_action": IdleAction(stored.get("idle_action", IdleAction.END)),
        }
    )


def effective_limits(level: Level, requested: Mapping[str, Any]) -> SessionLimits:
    """The level's limits, lowered where the session requests less.

    Raises: ValidationError that names `limits.<field>` if the field is unknown, not a number, above
    the level's limit, or too small for a sandbox to work.
    """
    values = asdict(level.limits)
    for name, value in requested.items():
        values[name] = _lowered(name, value, values.get(name, 0))
    return _fitting(values)


def clamped_limits(level: Level, requested: Mapping[str, int | float]) -> SessionLimits:
    """The lower of the session's requested limits and the level's."""
    values = asdict(level.limits)
    return _fitting({**values, **{k: min(v, values[k]) for k, v in requested.items()}})


def _fitting(values: dict[str, Any]) -> SessionLimits:
    """Limits temporary files and shared memory, so that they use at most half of the memory."""
    quarter = values["memory_bytes"] // 4
    for name in ("tmp_bytes", "shm_bytes"):
        values[name] = min(values[name], quarter)
    return SessionLimits(**values)


def _lowered(name: str, value: Any, most: float) -> float:
    field = f"limits.{name}"
    least = MINIMUMS.get(name)
    if least is None:
        raise ValidationError(f"{field} is not one of {', '.join(MINIMUMS)}", field=field)
    fraction = name == "cpus"
    if isinstance(value, bool) or not isinstance(value, int | float if fraction else int):
        kind = "a number" if fraction else "an integer"
        raise ValidationError(f"{field} must be {kind}", field=field)
    if not least <= value <= most:
        raise ValidationError(
            f"{field} must be between {least} and the level's {most}", field=field
        )
    return float(value) if fraction else int(value)
