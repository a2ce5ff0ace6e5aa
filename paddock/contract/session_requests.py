"""Requests about sessions: create, list, change, close."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from paddock.contract.budget import BudgetBody
from paddock.contract.cluster import PlacementBody, SessionKeys
from paddock.contract.egress import NarrowingBody
from paddock.contract.fields import (
    LEVEL_SCHEMA,
    Environment,
    Label,
    Labels,
    Lease,
    MaxBytes,
    Metadata,
    MetadataPairs,
    PageSize,
    PermissionLevel,
    Reference,
    Secrets,
    ToolName,
    Truth,
    check_level,
    sentence,
)
from paddock.contract.packs import ContextPack
from paddock.contract.policies import PolicyChoice
from paddock.contract.requests import LARGEST_BODY, Body, Query, check_names
from paddock.contract.snapshots import SnapshotRef
from paddock.contract.templates import TemplateName
from paddock.contract.volumes import VolumeMount
from paddock.contract.words import (
    ID_PATTERN,
    MAX_WALL_SECONDS,
    MOUNT_NAME,
)

_MountName = Annotated[str, StringConstraints(pattern=MOUNT_NAME, max_length=64)]
_SessionId = Annotated[
    str,
    Field(min_length=1, max_length=128, json_schema_extra={"pattern": f"^{ID_PATTERN}$"}),
]


class LimitsBody(Body):
    """Lower limits than the level's: cores, bytes and processes."""

    cpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    memory_bytes: int | None = Field(default=None, ge=1)
    pids: int | None = Field(default=None, ge=1)
    tmp_bytes: int | None = Field(default=None, ge=1)
    workspace_bytes: int | None = Field(default=None, ge=1)


class SessionBody(Body):
    """The body of `POST /api/sessions`; time-outs are in seconds."""

    MOST_BYTES = LARGEST_BODY

    id: _SessionId | None = Field(default=None, description="Default: generated.")
    permission_level: PermissionLevel = Field(default=None, description="Default: `medium`.")
    image: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None,
        description="One of the operator's list. Default: the level's own default image if it is "
        "available, else the instance's.",
    )
    template: TemplateName | None = Field(
        default=None,
        description="A template of `GET /api/templates`: the session begins with its workspace, "
        "which is prepared first where needed, and has its members where it names none.",
    )
    labels: Labels = Field(default_factory=dict)
    metadata: Metadata = Field(
        default_factory=dict,
        description="What the caller keeps with it: names and texts of any characters, at most 16 "
        "KiB in all. Sessions are found by them, and they are on record, so no secrets.",
    )
    env: Environment = Field(default_factory=dict, description="Variables of every command.")
    secrets: Secrets = Field(
        default_factory=dict,
        description="Variables of every command whose values are never stored, and are cut out of "
        "whatever is recorded. Where the level lists variables, other names begin with `SECRET_`.",
    )
    limits: LimitsBody = Field(default_factory=LimitsBody)
    idle_timeout: int | None = Field(
        default=None,
        ge=1,
        description="Seconds without activity after which the session ends or is suspended.",
    )
    idle_action: Literal["end", "suspend"] | None = Field(
        default=None,
        description="Whether it is ended then, or suspended until its next use; default: its "
        "level's. With secrets, or if it may write files of its context pack, it is ended.",
    )
    wall_timeout: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WALL_SECONDS,
        description="Seconds after which the session ends, used or not.",
    )
    budget: BudgetBody = Field(default_factory=BudgetBody)
    mounts: Annotated[list[_MountName], Field(max_length=16)] = Field(
        default=[], description="Names from the operator's list, in addition to the level's."
    )
    volumes: Annotated[list[VolumeMount], Field(max_length=8)] = Field(
        default=[], description="Volumes of its key, and where the session has them."
    )
    workspace_path: Annotated[str, Field(min_length=2, max_length=256)] | None = Field(
        default=None,
        description="Where its workspace is in the sandbox, such as `/home/user`: an absolute path "
        "that is not in /tmp, in a directory of the system or in another mount; default: "
        "`/workspace`.",
    )
    role: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Its agent's role in Cedar policies; default: `agent`."
    )
    tools: Annotated[list[ToolName], Field(max_length=128)] | None = Field(
        default=None,
        description="The tools that it may open; default: any that its level permits.",
    )

    egress: NarrowingBody | None = Field(
        default=None,
        description="Narrows its way out, at a level that has one: in addition to the level's "
        "rules, a request must be allowed by these.",
    )
    policy: PolicyChoice | None = Field(
        default=None,
        description="What its turns may do: the name of a session policy, or its members; default: "
        "`SAFE_ANALYSIS`.",
    )
    work_id: Reference | None = Field(
        default=None,
        description="The caller's name for the work that the session is for; refinements of "
        "context packs are counted by it. Default with `consume`: generated.",
    )
    lease_id: Lease | None = Field(
        default=None,
        repr=False,
        description="The caller's lease of the work. It is never stored or shown, and is cut out "
        "of whatever is recorded.",
    )
    policy_resolved_ref: Reference | None = Field(
        default=None, description="The caller's reference to the policy that it has applied."
    )
    episode_id: Reference | None = Field(
        default=None, description="The caller's name for the episode of the work."
    )

    placement: PlacementBody = Field(
        default_factory=PlacementBody, description="Where it is put in a cluster."
    )
    recovery: Literal["none", "snapshot"] = Field(
        default="none",
        description="What happens if its node is lost: `none`, it is there again when the node "
        "is; `snapshot`, another node goes on with its last copy, and it stands still while its "
        "node does not reach the cluster. Without a cluster, `snapshot` is refused.",
    )
    from_snapshot: SnapshotRef | None = Field(
        default=None,
        description="The name or the id of a snapshot of its key: its workspace begins with these "
        "files. There must be no workspace with its id.",
    )
    consume: ContextPack | None = Field(
        default=None,
        description="Limits it to a context pack: it reads the files of the pack and nothing else "
        "of its workspace, and has no network. The files must be in the workspace already.",
    )

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        check_names(self.env, self.secrets)
        return self


class NamedSessionBody(SessionBody):
    """The body of `PUT /api/sessions/{id}`; the path has the id."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema["properties"].pop("id"))

    @model_validator(mode="after")
    def _no_other_id(self) -> Self:
        if "id" in self.model_fields_set:
            raise sentence("id is in the path, not in the body")
        return self


class EpisodeBody(Body):
    """The body of `PUT …/episode`; null: the session has no episode."""

    episode_id: Reference | None


class WorkspaceWishes(Body):
    """The control plane owns the workspace: a member may only have its present value, or null."""

    mode: Annotated[str, MaxBytes(4096)] | None = None
    root_dir: Annotated[str, MaxBytes(4096)] | None = None

    @property
    def given(self) -> dict[str, str]:
        """The members that have a value."""
        return {name: value for name, value in self if value is not None}


class ShownDeadlines(Body):
    """The deadlines of the answer. They follow from the time-outs, so what is sent is not used."""

    idle_at: Annotated[str, MaxBytes(64)] | None = None
    wall_at: Annotated[str, MaxBytes(64)] | None = None
    budget_at: Annotated[str, MaxBytes(64)] | None = None


class SettingsMembers(Body):
    """What may be set; without a member, or with null, it stays as it is.

    `workspace` and `deadlines` are those of the answer: a client may send back what it got.
    """

    permission_level: Annotated[str | None, WithJsonSchema(LEVEL_SCHEMA)] = Field(
        default=None, description="Default: as it is."
    )
    idle_timeout: int | None = Field(
        default=None,
        ge=1,
        description="Seconds without activity after which the session ends or is suspended; "
        "default: as they are.",
    )
    wall_timeout: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WALL_SECONDS,
        description="Seconds from its creation after which the session ends; default: as they are.",
    )
    keep_alive: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WALL_SECONDS,
        description="Seconds from now for which neither time-out ends it: shorter ones are "
        "lengthened. The time of its budget is not.",
    )
    workspace: WorkspaceWishes = Field(default_factory=WorkspaceWishes)
    deadlines: ShownDeadlines = Field(default_factory=ShownDeadlines)

    @property
    def sets_time(self) -> bool:
        """Whether a time-out is asked for."""
        return any(seconds is not None for seconds in self.times)

    @property
    def times(self) -> tuple[int | None, int | None, int | None]:
        """The idle and the wall time-out, and for how long neither may end it."""
        return self.idle_timeout, self.wall_timeout, self.keep_alive


class SettingsBody(Body):
    """The body of `PUT …/settings`."""

    settings: SettingsMembers

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


class SessionsQuery(Query):
    """`label` is key:value; `cursor` is the `next` of the previous page.

    Without `parent`, it has the sessions that no session has spawned. With `live`, those that are
    active or paused; with `ended`, or a final status, all sessions that ever ended so; otherwise
    live and recently ended ones. Where few sessions match, a page may have fewer than `limit`, or
    none, although there are more.
    """

    status: (
        Literal["active", "paused", "live", "ended", "completed", "aborted", "budget-exceeded"]
        | None
    ) = None
    label: Label | None = None
    metadata: MetadataPairs | None = Field(
        default=None,
        description="Only sessions that have all of these: `name=text` pairs, joined by `&` and "
        "encoded as in a form.",
    )
    work_id: Reference | None = None
    parent: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="The id of a session whose children are listed."
    )
    order: Literal["asc", "desc"] = Field(
        default="desc", description="`desc`: the newest first; `asc`: the oldest first."
    )
    limit: PageSize = 100
    cursor: Annotated[str, Field(max_length=128)] | None = None
    keys: SessionKeys | None = Field(
        default=None,
        description="Of these lives only, as the nodes of a cluster name them, split by commas.",
    )


class RestoreQuery(Query):
    """Whether the session of a snapshot is restored under another id."""

    id: _SessionId | None = Field(
        default=None,
        description="Another id than the snapshot's: a new session, whose time and budget begin "
        "anew, so that one snapshot serves as often as needed.",
    )


class CloseQuery(Query):
    """`purge` removes the workspace as well."""

    purge: Truth = False
