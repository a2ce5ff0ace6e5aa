"""Sessions and their settings."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    Strict,
)

from paddock.contract.base import WORDS, Count, LevelName, Model, Time, example
from paddock.contract.budget import EXAMPLE as BUDGET
from paddock.contract.budget import Budget
from paddock.contract.cluster import Missing
from paddock.contract.commands import Command
from paddock.contract.policies import EXAMPLE as POLICY
from paddock.contract.policies import PolicyVersion
from paddock.contract.system import LevelLimits
from paddock.contract.volumes import SessionVolume
from paddock.contract.words import (
    Activity,
    IdleAction,
    Rationale,
    SpawnedWorkspace,
    Start,
    Status,
)

_ID = "sess-4f1c0a9be27d3586"
_LIMITS = {
    "cpus": 0.5,
    "memory_bytes": 268435456,
    "pids": 64,
    "tmp_bytes": 16777216,
    "shm_bytes": 0,
    "workspace_bytes": 268435456,
}
_SETTINGS: dict[str, Any] = {
    "permission_level": "low",
    "workspace": {
        "mode": "session",
        "root_dir": f"/var/lib/paddock/session-workspaces/{_ID}",
    },
}
_DEADLINES = {
    "idle_at": "2026-03-04T10:00:12.482113Z",
    "wall_at": "2026-03-05T09:30:11.902771Z",
    "budget_at": None,
}
EXAMPLE: dict[str, Any] = {
    "id": _ID,
    "incarnation": 1,
    "owner": "ci",
    "node": None,
    "status": "active",
    "activity": "idle",
    **_SETTINGS,
    "workspace_path": "/workspace",
    "sandbox": {
        "id": "0c9be27d35864f1a",
        "image": "paddock/sandbox:latest",
        "network": "none",
        "mounts": [],
        "start": "cold",
        "connected": True,
        "state": "running",
        "limits": {"cpus": 0.5, "memory_bytes": 268435456, "pids": 64},
    },
    "labels": {"team": "search"},
    "metadata": {"user": "Anna Lindqvist"},
    "role": "agent",
    "tools": ["psql", "redis-cli"],
    "secrets": ["SECRET_TOKEN"],
    "volumes": [{"name": "cache", "path": "/data/cache", "read_only": False}],
    "policy": {"name": POLICY["name"], "sha256": POLICY["sha256"]},
    "work_id": "issue-4711",
    "policy_resolved_ref": None,
    "episode_id": None,
    "missing_image": None,
    "consume": None,
    "idle_action": "end",
    "limits": _LIMITS,
    "created_at": "2026-03-04T09:30:11.902771Z",
    "last_activity_at": "2026-03-04T09:30:12.482113Z",
    "budget": BUDGET,
    "deadlines": _DEADLINES,
    "termination": None,
    "commands": [],
    "parent": None,
    "children": [],
    "depth": 0,
    "spawn": None,
}


class Workspace(Model):
    """The location of the session's files on the host."""

    mode: Annotated[Literal["session"], WORDS]
    root_dir: str


class SandboxLimits(Model):
    """The limits that the engine enforces on the sandbox."""

    cpus: float
    memory_bytes: int
    pids: int


class Sandbox(Model):
    """The session's container."""

    id: str
    image: str
    network: str = Field(description="`none`, or the name of its network.")
    mounts: list[str] = Field(description="Names from the operator's list.")
    start: Annotated[Start, Strict(False), WORDS] = Field(
        description="`warm`: it had been started before it was needed; `cold`: it had not."
    )
    connected: bool = Field(description="Whether its agent is connected to the control plane.")
    state: str | None = Field(description="`running` or `paused`; null in lists.")
    limits: SandboxLimits | None = Field(description="As the engine set them; null in lists.")


class Deadlines(Model):
    """When the session ends by itself, whichever comes first; all null after its end."""

    idle_at: Time | None = Field(
        description="When it ends or is suspended, as its `idle_action` says. Also null while it "
        "is busy, paused, or suspended because it was idle."
    )
    wall_at: Time | None = Field(
        description="From `wall_timeout`, also during a pause; null if there is none."
    )
    budget_at: Time | None = Field(
        description="From `budget.time`, also during a pause; null if there is none."
    )


class SessionSettings(Model):
    """A session's settings, and when it ends by its time-outs."""

    model_config = example(
        {**_SETTINGS, "idle_timeout": 1800, "wall_timeout": 86400, "deadlines": _DEADLINES}
    )

    permission_level: LevelName
    idle_timeout: int = Field(description="Seconds without activity until it ends or is suspended.")
    wall_timeout: int | None = Field(
        description="Seconds from its creation until it ends; null: no limit."
    )
    workspace: Workspace
    deadlines: Deadlines


class Termination(Model):
    """How the session ended."""

    rationale_code: Annotated[Rationale, Strict(False), WORDS]
    exit_classification: Annotated[Literal["SUCCESS", "FAILURE"], WORDS]
    exit_code: int | None
    terminated_at: Time


class Consume(Model):
    """What the session may read: a context pack, shown in full by `GET …/consume`."""

    manifest_id: str
    manifest_hash: str
    mode: Annotated[Literal["hard_fail", "soft_fail", "warn"], WORDS]
    refinement_count: Count = Field(
        description="How many earlier sessions of its work item missed something."
    )


class Spawn(Model):
    """How a session was spawned."""

    spawn_id: str
    label: str | None
    workspace: Annotated[SpawnedWorkspace, WORDS] = Field(
        description="`own`, or `read-only` for its parent's."
    )


class Session(Model):
    """A session with its current state."""

    model_config = example(EXAMPLE)

    id: str
    incarnation: int = Field(ge=1, description="The incarnation of the session id.")
    owner: str = Field(description="The name of the key that created it.")
    node: str | None = Field(
        default=None, description="The node where it lives; null without a cluster."
    )
    status: Annotated[Status, Strict(False), WORDS]
    activity: Annotated[Activity, Strict(False), WORDS] = Field(
        description="`running` while a command, a tool or a turn is busy; a run also while it "
        "waits for its model."
    )
    permission_level: LevelName
    workspace: Workspace
    workspace_path: str = Field(
        description="Where its workspace is in its sandbox: absolute paths in it begin with this."
    )
    sandbox: Sandbox | None = Field(description="Null while it is suspended, and after its end.")
    labels: dict[str, str]
    metadata: dict[str, str] = Field(
        default={}, description="What its creator keeps with it: names and texts."
    )
    role: str = Field(description="Its agent's role in Cedar policies.")
    tools: list[str] | None = Field(
        description="The tools that it may open; null: any that its level permits."
    )
    secrets: list[str] = Field(description="Names of its secrets.")
    volumes: list[SessionVolume] = Field(description="The volumes of its key that it has.")
    policy: PolicyVersion = Field(
        description="What its turns may do, as it was when the session was created."
    )
    work_id: str | None = Field(description="The caller's name for its work.")
    policy_resolved_ref: str | None = Field(
        description="The caller's reference to the policy that it has applied."
    )
    episode_id: str | None = Field(description="The caller's name for the episode of the work.")
    missing_image: str | None = Field(
        description="Its level's default image, if that was not there when the session was "
        "created without an `image`: it has `sandbox.image` instead. Else null."
    )
    consume: Consume | None = Field(
        description="Its context pack; null: it reads whatever its level permits."
    )
    idle_action: Annotated[IdleAction, Strict(False), WORDS] = Field(
        description="What happens at `deadlines.idle_at`."
    )
    limits: LevelLimits
    created_at: Time
    last_activity_at: Time
    budget: Budget
    deadlines: Deadlines
    termination: Termination | None = Field(description="Null while it lives.")
    commands: list[Command] = Field(description="The running commands.")
    parent: str | None = Field(description="The session that has spawned it; null: a client has.")
    children: list[str] = Field(description="Ids of its live children.")
    depth: Count = Field(description="How many sessions are above it.")
    spawn: Spawn | None = Field(description="How it was spawned; null without a parent.")

    @property
    def live(self) -> bool:
        """Whether the session has not ended."""
        return self.status in (Status.ACTIVE, Status.PAUSED)


class CreatedSession(Session):
    """A new session and its handle, which is not shown again."""

    model_config = example(
        {**EXAMPLE, "handle": "H-3f0e6a52-94d1-4c7b-8a2e-5d1f9b7c6e30", "gave_way": []}
    )

    handle: str = Field(description="The bearer token for this session's work.")
    gave_way: list[str] = Field(
        default=[],
        description="Ids of the caller's sessions that were suspended to make room for it.",
    )


class Sessions(Model):
    """Sessions, newest first; `next` is the `cursor` of the next page."""

    model_config = example({"items": [EXAMPLE], "next": None, "missing": []})

    items: list[Session]
    next: str | None
    missing: Missing = []


class PurgedWorkspace(Model):
    """Confirms that the workspace of a session that ended long ago was removed."""

    model_config = example({"id": _ID, "purged": True})

    id: str
    purged: Literal[True]


class Handle(Model):
    """A session's new handle; the old one is invalid."""

    model_config = example({"handle": "H-3f0e6a52-94d1-4c7b-8a2e-5d1f9b7c6e30"})

    handle: str
