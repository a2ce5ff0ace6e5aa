"""Health and permission levels."""

from typing import Annotated, Literal

from pydantic import Field, Strict

from paddock.contract.base import WORDS, Count, LevelName, Model, RiskTier, Sha256, example
from paddock.contract.policies import LISTED_EXAMPLE as POLICY
from paddock.contract.policies import (
    ListedPolicy,
)
from paddock.contract.words import IdleAction

_LIMITS = {
    "cpus": 0.5,
    "memory_bytes": 268435456,
    "pids": 64,
    "tmp_bytes": 16777216,
    "shm_bytes": 0,
    "workspace_bytes": 268435456,
}
_LOW = {
    "name": "low",
    "rank": 100,
    "allowed": True,
    "rule": None,
    "risk_tier": "low",
    "commands": ["cat", "ls", "pwd"],
    "network": "none",
    "limits": _LIMITS,
    "timeout_default": 20,
    "timeout_max": 120,
    "output_bytes": 1048576,
    "audit_bytes": 268435456,
    "noexec": True,
    "guard_writes": True,
    "durability": "node",
    "idle_action": "end",
    "rates": {
        "disk_read": None,
        "disk_write": 52428800,
        "network_receive": None,
        "network_send": None,
    },
    "egress": {"allow": [], "deny": []},
    "environment": ["LANG", "LC_*", "TZ"],
    "variables": {},
    "requires": {
        "landlock": 1,
        "seccomp": True,
        "mounts": True,
        "quota": False,
        "without": [],
    },
    "confinement": {
        "paths": True,
        "read": [],
        "execute": [],
        "writable_code": False,
        "ptrace": False,
        "record_execs": True,
    },
    "home": "/nonexistent",
    "mounts": [],
    "images": None,
    "runtime": None,
    "sha256": "9f2d1ea1f4a1d6f0b4b6b1e5d1a7c0e2f3948d7c6b5a49382716f5e4d3c2b1a0",
}

FACILITY = {
    "name": "mdwe",
    "decides": "writable code",
    "preferred": False,
    "provided": True,
    "detail": "the system call filter (kernel before 6.3)",
}
_RUNTIME = {
    "name": "runc",
    "usual": True,
    "levels": ["low", "medium", "high"],
    "facilities": [FACILITY],
}


class Health(Model):
    """The process serves requests."""

    model_config = example({"status": "ok"})

    status: Literal["ok"]


class Check(Model):
    """One requirement of sessions."""

    ok: bool = Field(description="Whether this check allows sessions to be created.")
    status: Annotated[Literal["ok", "warning", "failure"], WORDS]
    detail: str
    remedy: str | None = Field(description="How to fix it; null if it is ok.")


class Readiness(Model):
    """Whether sessions can be created, with the result of each check."""

    model_config = example(
        {
            "status": "ready",
            "checks": {
                "engine": {
                    "ok": True,
                    "status": "ok",
                    "detail": "version 20.10.24, cgroup 2",
                    "remedy": None,
                },
                "level high": {
                    "ok": True,
                    "status": "warning",
                    "detail": "can't be enforced: needs Landlock version 6, but found version 4",
                    "remedy": "`paddock doctor` shows how to get it",
                },
            },
        }
    )

    status: Annotated[Literal["ready", "not ready"], WORDS]
    checks: dict[str, Check]

    @property
    def ready(self) -> bool:
        """Whether sessions can be created."""
        return self.status == "ready"


class LevelLimits(Model):
    """The limits of one session: cores, bytes, processes."""

    cpus: float
    memory_bytes: Count
    pids: Count
    tmp_bytes: Count
    shm_bytes: Count
    workspace_bytes: Count


class LevelRequirements(Model):
    """Requirements on the host; without them, sessions at the level are refused."""

    landlock: Count = Field(
        description="The lowest version of Landlock's interface; 0: not needed."
    )
    seccomp: bool
    mounts: bool = Field(description="Workspaces mounted with their own flags.")
    quota: bool = Field(description="Workspaces that can't exceed their size.")
    without: list[str] = Field(
        default=[],
        description="Facilities of the kernel, by name, that the level goes without where they are "
        "missing: nothing decides then what they would.",
    )


class LevelRates(Model):
    """The maximum that one session transfers, in bytes per second; null: unlimited."""

    disk_read: Count | None
    disk_write: Count | None
    network_receive: Count | None
    network_send: Count | None


class LevelConfinement(Model):
    """What the kernel enforces on the level's commands."""

    paths: bool = Field(
        description="Only the commands' programs are executable, and only their needs readable."
    )
    read: list[str] = Field(description="Further readable paths of the image.")
    execute: list[str] = Field(description="Further executable paths of the image.")
    writable_code: bool = Field(description="Memory may be writable and executable at once.")
    ptrace: bool = Field(description="A command may trace its own children.")
    record_execs: bool = Field(description="Programs that a command executes are recorded.")


class EgressRule(Model):
    """Hosts or addresses at certain ports."""

    host: str | None = Field(description="A name, or `*.name` for all names below it.")
    cidr: str | None = Field(description="A network; null if there is a host.")
    ports: list[int] = Field(description="Empty: every port.")
    methods: list[str] = Field(description="Empty: every method.")
    paths: list[str] = Field(
        description="Globs: `*` is any part of a segment, `**` any part of the path. Empty: every "
        "path."
    )
    inspect: bool = Field(description="TLS to the host is read, so that each request is decided.")
    programs: list[str] = Field(
        description="Programs whose requests it is about, by what the sandbox says; empty: all."
    )
    upgrade: bool = Field(description="`http://` requests to the host go out in TLS.")


class LevelEgress(Model):
    """The rules of the way out. What none allows is denied; `deny` beats `allow`."""

    allow: list[EgressRule]
    deny: list[EgressRule]


class Level(Model):
    """A permission level as defined by its file."""

    model_config = example(_LOW)

    name: LevelName
    rank: Count = Field(description="The order of levels: a lower level has a lower rank.")
    allowed: bool = Field(description="Whether the caller may give it to a session.")
    rule: str | None = Field(
        description="`key-max-level` for a level above the `max_level` of the caller's key."
    )
    risk_tier: RiskTier = Field(description="The highest risk tier of a tool's command.")
    commands: list[str] | None = Field(description="The commands that may run; null: any.")
    network: Annotated[Literal["none", "egress", "open"], WORDS]
    limits: LevelLimits
    timeout_default: int = Field(description="Seconds.")
    timeout_max: int = Field(description="Seconds.")
    output_bytes: Count = Field(description="Bytes that are kept of a command's output.")
    audit_bytes: Count = Field(
        description="Maximum size of one session's record in the audit ledger."
    )
    noexec: bool = Field(description="Files in the workspace and /tmp can't be executed.")
    guard_writes: bool = Field(
        description="Where any command is allowed: those known to write may name only paths in "
        "the workspace, /tmp, /dev and the session's writable mounts."
    )
    durability: Literal["node", "cluster"] = Field(
        description="Where the events that begin and end its sessions are durable before the "
        "answer: on their node, or in the cluster's database, too."
    )
    idle_action: Annotated[IdleAction, Strict(False), WORDS] = Field(
        description="What happens to idle sessions, unless they ask for something else."
    )
    rates: LevelRates
    egress: LevelEgress = Field(description="What may be reached with the network `egress`.")
    environment: list[str] | None = Field(
        description="Variables that callers may set, or prefixes ending in `*`; null: any."
    )
    variables: dict[str, str] = Field(description="Further variables of every command.")
    requires: LevelRequirements
    confinement: LevelConfinement
    home: str
    mounts: list[str] = Field(description="Names from the operator's list that its sessions get.")
    images: list[str] | None = Field(
        description="The images that its sessions may have; null: any on the operator's list."
    )
    runtime: str | None = Field(
        default=None,
        description="The engine's runtime of its sandboxes; null: that of the settings, or the "
        "engine's default.",
    )
    user: Annotated[Literal["sandbox", "root"], WORDS] = Field(
        default="sandbox",
        description="Whom its commands see themselves as. `root`: uid 0 of a user namespace of "
        "their own, with rights over the session's own files only.",
    )
    root_bytes: Count | None = Field(
        default=None,
        description="The size of the writable layer over the image that root inside has, which is "
        "gone with the sandbox; null: the image is read-only.",
    )
    root_in_force: bool | None = Field(
        default=None,
        description="Whether its latest sandbox had root inside; null: it has had none since the "
        "start, or commands are not root inside.",
    )
    root_refused: str | None = Field(
        default=None, description="Why its latest sandbox could not start."
    )
    sha256: Sha256 = Field(description="Of the level's file.")


class FacilityMeans(Model):
    """By what means something is decided: the kernel's own, or a substitute on an older one."""

    model_config = example(FACILITY)

    name: str
    decides: str = Field(description="For example `writable code`.")
    preferred: bool = Field(description="The kernel has the facility; else `detail` says why not.")
    provided: bool = Field(description="False: sessions that need it are refused.")
    detail: str


class Runtime(Model):
    """A runtime of the engine, and by what means it enforces levels."""

    model_config = example(_RUNTIME)

    name: str
    usual: bool = Field(description="Levels that name no runtime have this one.")
    levels: list[str] = Field(description="The levels whose sandboxes have it.")
    facilities: list[FacilityMeans] | None = Field(
        description="What its latest sandbox found inside; null: it has had none since the start."
    )


class Levels(Model):
    """The permission levels, lowest first, and the policies that sessions may have."""

    model_config = example(
        {
            "items": [_LOW],
            "session_policies": [POLICY],
            "facilities": [FACILITY],
            "runtimes": [_RUNTIME],
            "next": None,
        }
    )

    items: list[Level]
    session_policies: list[ListedPolicy] = Field(
        default=[], description="What turns may do; the built-in ones first."
    )
    facilities: list[FacilityMeans] = Field(
        default=[], description="By what means this host enforces the levels."
    )
    runtimes: list[Runtime] = Field(
        default=[], description="The engine's runtimes, the usual one first."
    )
    next: None
