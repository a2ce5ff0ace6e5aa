"""Sessions and their settings."""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from paddock.contract.base import WORDS, LevelName, Model, Time, example
from paddock.contract.budget import EXAMPLE as BUDGET
from paddock.contract.budget import Budget, BudgetBody
from paddock.contract.commands import Command
from paddock.contract.fields import (
    LEVEL_SCHEMA,
    Environment,
    Label,
    Labels,
    PageSize,
    PermissionLevel,
    Secrets,
    ToolName,
    Truth,
    check_level,
    sentence,
)
from paddock.contract.requests import Body, Query, check_names
from paddock.contract.system import LevelLimits
from paddock.contract.words import (
    ID_PATTERN,
    MAX_WALL_SECONDS,
    MOUNT_NAME,
    Activity,
    Rationale,
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
EXAMPLE: dict[str, Any] = {
    "id": _ID,
    "incarnation": 1,
    "owner": "ci",
    "status": "active",
    "activity": "idle",
    **_SETTINGS,
    "sandbox": {
        "id": "0c9be27d35864f1a",
        "image": "paddock/sandbox:latest",
        "network": "none",
        "mounts": [],
        "connected": True,
        "state": "running",
        "limits": {"cpus": 0.5, "memory_bytes": 268435456, "pids": 64},
    },
    "labels": {"team": "search"},
    "role": "agent",
    "tools": ["psql", "redis-cli"],
    "secrets": ["SECRET_TOKEN"],
    "limits": _LIMITS,
    "created_at": "2026-03-04T09:30:11.902771Z",
    "last_activity_at": "2026-03-04T09:30:12.482113Z",
    "budget": BUDGET,
    "deadlines": {
        "idle_at": "2026-03-04T10:00:12.482113Z",
        "wall_at": "2026-03-05T09:30:11.902771Z",
        "budget_at": None,
    },
    "termination": None,
    "commands": [],
}


class Workspace(Model):
    """Where the session's files are on the host."""

    mode: Annotated[Literal["session"], WORDS]
    root_dir: str


class SessionSettings(Model):
    """A session's settings."""

    model_config = example(_SETTINGS)

    permission_level: LevelName
    workspace: Workspace


class SandboxLimits(Model):
    """The limits that the engine holds the sandbox to."""

    cpus: float
    memory_bytes: int
    pids: int


class Sandbox(Model):
    """The session's container."""

    id: str
    image: str
    network: str = Field(description="`none`, or the name of the network that it is on.")
    mounts: list[str] = Field(description="Names of the operator's list.")
    connected: bool = Field(description="Its agent has a connection to the control plane.")
    state: str | None = Field(description="`running` or `paused`; null in lists.")
    limits: SandboxLimits | None = Field(description="As the engine set them; null in lists.")


class Deadlines(Model):
    """When the session ends by itself, whichever comes first; all null once it is over."""

    idle_at: Time | None = Field(description="Null also while it is busy or paused.")
    wall_at: Time | None = Field(description="By `wall_timeout`, in a pause as well; else null.")
    budget_at: Time | None = Field(description="By `budget.time`, in a pause as well; else null.")


class Termination(Model):
    """How the session ended."""

    rationale_code: Annotated[Rationale, Strict(False), WORDS]
    exit_classification: Annotated[Literal["SUCCESS", "FAILURE"], WORDS]
    exit_code: int | None
    terminated_at: Time


class Session(Model):
    """A session with its live facts."""

    model_config = example(EXAMPLE)

    id: str
    incarnation: int = Field(ge=1, description="Which session of that id.")
    owner: str = Field(description="The name of the key that created it.")
    status: Annotated[Status, Strict(False), WORDS]
    activity: Annotated[Activity, Strict(False), WORDS]
    permission_level: LevelName
    workspace: Workspace
    sandbox: Sandbox | None
    labels: dict[str, str]
    role: str = Field(description="Who Cedar policies take its agent for.")
    tools: list[str] | None = Field(
        description="The tools that it may open; null: any that its level permits."
    )
    secrets: list[str] = Field(description="Names of its secrets.")
    limits: LevelLimits
    created_at: Time
    last_activity_at: Time
    budget: Budget
    deadlines: Deadlines
    termination: Termination | None = Field(description="Null while it lives.")
    commands: list[Command] = Field(description="The commands that run.")

    @property
    def live(self) -> bool:
        """Whether the session has not ended."""
        return self.status in (Status.ACTIVE, Status.PAUSED)


class CreatedSession(Session):
    """A new session and its handle, which is not shown again."""

    model_config = example({**EXAMPLE, "handle": "H-3f0e6a52-94d1-4c7b-8a2e-5d1f9b7c6e30"})

    handle: str = Field(description="The bearer token for this session's work.")


class Sessions(Model):
    """Sessions, newest first; `next` is the `cursor` of the next page."""

    model_config = example({"items": [EXAMPLE], "next": None})

    items: list[Session]
    next: str | None


class PurgedWorkspace(Model):
    """The workspace of a session that ended long ago is removed."""

    model_config = example({"id": _ID, "purged": True})

    id: str
    purged: Literal[True]


class Handle(Model):
    """A session's new handle; the old one is void."""

    model_config = example({"handle": "H-3f0e6a52-94d1-4c7b-8a2e-5d1f9b7c6e30"})

    handle: str


_MountName = Annotated[str, StringConstraints(pattern=MOUNT_NAME)]
_SessionId = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"pattern": f"^{ID_PATTERN}$", "maxLength": 128}),
]
_SETTINGS_SCHEMA = {
    "type": "object",
    "properties": {"permission_level": LEVEL_SCHEMA, "workspace": {"type": "object"}},
}


def _recordable(value: Any) -> Any:
    """Any JSON value as one that audit events may hold: a plain one, or its text."""
    plain = value is None or isinstance(value, str | bool)
    return value if plain else json.dumps(value, ensure_ascii=False)


class LimitsBody(Body):
    """Lower limits than the level's: cores, bytes and processes."""

    cpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    memory_bytes: int | None = Field(default=None, ge=1)
    pids: int | None = Field(default=None, ge=1)
    tmp_bytes: int | None = Field(default=None, ge=1)
    workspace_bytes: int | None = Field(default=None, ge=1)


class SessionBody(Body):
    """What `POST /api/sessions` takes; time-outs in seconds."""

    id: _SessionId | None = Field(default=None, description="Made up where it is not given.")
    permission_level: PermissionLevel = Field(default=None, description="`medium` where not given.")
    image: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="One of those that the operator lists."
    )
    labels: Labels = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict, description="Variables of every command.")
    secrets: Secrets = Field(
        default_factory=dict,
        description="Variables of every command whose values are never stored, and are cut out of "
        "whatever is recorded. Where the level lists variables, other names begin with `SECRET_`.",
    )
    limits: LimitsBody = Field(default_factory=LimitsBody)
    idle_timeout: int | None = Field(
        default=None, ge=1, description="Seconds without use after which the session ends."
    )

    wall_timeout: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WALL_SECONDS,
        description="Seconds after which the session ends, used or not.",
    )
    budget: BudgetBody = Field(default_factory=BudgetBody)
    mounts: Annotated[list[_MountName], Field(max_length=16)] = Field(
        default=[], description="Names of the operator's list, besides the level's."
    )
    role: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Who Cedar policies take its agent for; `agent` where not given."
    )
    tools: Annotated[list[ToolName], Field(max_length=128)] | None = Field(
        default=None,
        description="The tools that it may open; where not given, any that its level permits.",
    )

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        check_names(self.env, self.secrets)
        return self


class NamedSessionBody(SessionBody):
    """What `PUT /api/sessions/{id}` takes: the path has the id."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema["properties"].pop("id"))

    @model_validator(mode="after")
    def _no_other_id(self) -> Self:
        if "id" in self.model_fields_set:
            raise sentence("id is in the path, not in the body")
        return self


class SettingsBody(Body):
    """What `PUT …/settings` takes: unknown members of `settings` are dropped.

    `workspace` is the control plane's: what a client says about it is only recorded.
    """

    settings: Annotated[dict[str, Any], WithJsonSchema(_SETTINGS_SCHEMA)]

    @model_validator(mode="before")
    @classmethod
    def _check(cls, value: Any, info: ValidationInfo) -> Any:
        settings = value.get("settings")
        if not isinstance(settings, dict):
            raise sentence("body.settings must be an object")
        if "permission_level" in settings:
            check_level("settings.permission_level", settings["permission_level"], info)
        if not isinstance(settings.get("workspace", {}), dict):
            raise sentence("settings.workspace must be an object")
        return value

    @property
    def permission_level(self) -> str | None:
        """The level asked for, or None to keep the current one."""
        return self.settings.get("permission_level")

    @property
    def ignored(self) -> dict[str, Any]:
        """The client's wishes for the workspace, which the control plane owns, for the record."""
        wishes = self.settings.get("workspace", {})
        return {name: _recordable(wish) for name, wish in wishes.items()}


class SessionsQuery(Query):
    """`label` as key:value; `cursor` is the `next` of the page before.

    With `ended`, or a status that is final, all that ever ended so; otherwise those that live
    or ended lately.
    """

    status: (
        Literal["active", "paused", "ended", "completed", "aborted", "budget-exceeded"] | None
    ) = None
    label: Label | None = None
    limit: PageSize = 100
    cursor: Annotated[str, Field(max_length=128)] | None = None


class CloseQuery(Query):
    """`purge` removes the workspace as well."""

    purge: Truth = False
