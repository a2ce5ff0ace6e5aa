"""What the API tells of a session; times are aware `datetime`s in UTC."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from paddock.client.parsing import Result
from paddock.client.results import Command, Limits


@dataclass(frozen=True, kw_only=True)
class Workspace(Result):
    """Where a session's files are on the control plane's host."""

    mode: str
    root_dir: str


@dataclass(frozen=True, kw_only=True)
class SessionSettings(Result):
    """A session's settings; `permission_level` is a level's name."""

    permission_level: str
    workspace: Workspace


@dataclass(frozen=True, kw_only=True)
class Sandbox(Result):
    """A session's container; `state` and `limits` are None in lists.

    `mounts` are names of the operator's list.
    """

    id: str
    image: str
    network: str
    connected: bool
    state: str | None
    limits: dict[str, float] | None
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Deadlines(Result):
    """When a session ends by itself, whichever comes first.

    `idle_at` is None while it is busy or paused, the others where there is no such limit, all
    once it is over.
    """

    idle_at: datetime | None
    wall_at: datetime | None = None
    budget_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Budget(Result):
    """What a session may use up, has used and has left, by kind; None: unlimited.

    Kinds: `time` and `cpu_seconds` in seconds, `cost` in dollars, `iterations`, `commands`,
    `output_bytes`, `audit_bytes`, `tokens` and `egress_bytes` as counts.
    """

    limits: dict[str, float | None]
    consumed: dict[str, float]
    remaining: dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Termination(Result):
    """How a session ended; `exit_classification` is `SUCCESS` or `FAILURE`."""

    rationale_code: str
    exit_classification: str
    exit_code: int | None
    terminated_at: datetime


@dataclass(frozen=True, kw_only=True)
class Process(Result):
    """A process of a sandbox. `pid` as the sandbox sees it, `cpu_percent` of one core."""

    pid: int
    host_pid: int
    name: str
    argv: tuple[str, ...]
    state: str
    cpu_seconds: float
    cpu_percent: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Usage(Result):
    """What a sandbox uses as a whole; `cpu_seconds` since it was started."""

    cpu_seconds: float
    cpu_percent: float
    memory_bytes: int
    pids: int


@dataclass(frozen=True, kw_only=True)
class DiskUsage(Result):
    """How full a workspace is."""

    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, kw_only=True)
class Denial(Result):
    """A refusal; `args` say what was refused, `seq` is its place in the audit chain."""

    seq: int
    time: datetime
    actor: str
    operation: str
    rule: str | None
    args: dict[str, Any]
    error: str | None


@dataclass(frozen=True, kw_only=True)
class SessionInfo(Result):
    """A session as it was when the API told of it.

    `status` is `active`, `paused`, `completed`, `aborted` or `budget-exceeded`; `activity`
    is `idle`, `running` or `closed`; `tools` are those that it may open, None: any that its level
    permits; `secrets` are names. The last five members are there after `refresh` only:
    `processes`, `usage` and `disk` are None also where the host can't tell; `streams` counts the
    clients that follow or transfer something; `denials` are the latest, newest first.
    """

    id: str
    owner: str
    status: str
    activity: str
    permission_level: str
    workspace: Workspace
    sandbox: Sandbox | None
    labels: dict[str, str]
    limits: Limits
    created_at: datetime
    last_activity_at: datetime
    deadlines: Deadlines
    termination: Termination | None
    incarnation: int | None = None
    budget: Budget | None = None
    role: str | None = None
    tools: tuple[str, ...] | None = None
    secrets: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    processes: tuple[Process, ...] | None = None
    usage: Usage | None = None
    disk: DiskUsage | None = None
    streams: dict[str, int] = field(default_factory=dict)
    denials: tuple[Denial, ...] = ()

    @property
    def live(self) -> bool:
        """Whether the session has not ended."""
        return self.status in ("active", "paused")
