"""What the bodies of requests look like, and their bounds."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from api.fields import (
    LEVEL_SCHEMA,
    MIB,
    Argv,
    Base64,
    CommandLine,
    Directory,
    Environment,
    FilePath,
    Labels,
    Level,
    LevelName,
    MaxBytes,
    Secrets,
    Signal,
    ToolArguments,
    ToolName,
    Wait,
    check_level,
    sentence,
)
from orchestrator.budget import MOST
from orchestrator.config import MAX_WALL_SECONDS
from orchestrator.mount_list import MountName
from orchestrator.sessions.requests import ExecRequest, NewSession
from orchestrator.workspace.paths import ID_PATTERN

_COMMAND = "A line that is split at spaces; quotes keep them. No shell reads it."
_CWD = (
    "The command's directory: relative to the workspace, or under /workspace; at levels that allow "
    "any command, anywhere."
)
_SETTINGS_SCHEMA = {
    "type": "object",
    "properties": {"permission_level": LEVEL_SCHEMA, "workspace": {"type": "object"}},
}


def _exactly_one(*names: str) -> dict[str, Any]:
    """The schema of an object that has one of these members and not the others.

    It is negated twice: what shows a `oneOf` would show as many objects as it has parts.
    """
    parts = [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names
    ]
    return {"not": {"not": {"oneOf": parts}}}


def _recordable(value: Any) -> Any:
    """Any JSON value as one that audit events may hold: a plain one, or its text."""
    plain = value is None or isinstance(value, str | bool)
    return value if plain else json.dumps(value, ensure_ascii=False)


def _check_one(value: BaseModel, *names: str) -> None:
    given = [name for name in names if getattr(value, name) is not None]
    if len(given) != 1:
        *most, last = names
        raise sentence(f"exactly one of {', '.join(most)} and {last} must be given")


def _check_not_both(value: BaseModel, text: str, data: str) -> None:
    if getattr(value, text) is not None and getattr(value, data) is not None:
        raise sentence(f"one of {text} and {data} can be given, not both")


def _check_names(env: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    for name in env.keys() & secrets.keys():
        raise sentence(f"{name} is in env and in secrets: it can be in one of them")


class Body(BaseModel):
    """A request body: JSON types as they are, no other members."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class NoBody(Body):
    """Nothing, or an empty object."""


_SessionId = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"pattern": f"^{ID_PATTERN}$", "maxLength": 128}),
]


class LimitsBody(Body):
    """Lower limits than the level's: cores, bytes and processes."""

    cpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    memory_bytes: int | None = Field(default=None, ge=1)
    pids: int | None = Field(default=None, ge=1)
    tmp_bytes: int | None = Field(default=None, ge=1)
    workspace_bytes: int | None = Field(default=None, ge=1)


_Count = Annotated[int, Field(ge=1, le=MOST)]
# Inside, they are counted in millionths.
_Amount = Annotated[float, Field(gt=0, le=MOST // 10**6, allow_inf_nan=False)]


class BudgetBody(Body):
    """What the session may use up in all; when one of them is, it ends."""

    time: _Amount | None = Field(default=None, description="Seconds from its creation on.")
    iterations: _Count | None = Field(default=None, description="Turns.")
    commands: _Count | None = Field(
        default=None,
        description="Commands that are started, tools that are opened, lines sent to them.",
    )
    cpu_seconds: _Amount | None = Field(
        default=None, description="CPU time of everything in the sandbox."
    )
    output_bytes: _Count | None = Field(
        default=None, description="What commands and tools print, kept or not."
    )
    audit_bytes: Annotated[int, Field(ge=65_536, le=MOST)] | None = Field(
        default=None,
        description="What is on record of it, at most what its level says; that, where not given.",
    )
    tokens: _Count | None = Field(default=None, description="Tokens of language models.")
    cost: _Amount | None = Field(default=None, description="Dollars.")
    egress_bytes: _Count | None = Field(
        default=None, description="Bytes sent to the network and received."
    )


class SessionBody(Body):
    """What `POST /api/sessions` takes; time-outs in seconds."""

    id: _SessionId | None = Field(default=None, description="Made up where it is not given.")
    permission_level: LevelName = Field(default=None, description="`medium` where not given.")
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
    mounts: Annotated[list[MountName], Field(max_length=16)] = Field(
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
        _check_names(self.env, self.secrets)
        return self

    def request(self, session_id: str | None = None) -> NewSession:
        """The domain's request, for that id when the path names one."""
        return NewSession(
            id=session_id or self.id,
            permission_level=self.permission_level,
            image=self.image,
            labels=self.labels,
            env=self.env,
            secrets=self.secrets,
            limits=self.limits.model_dump(exclude_none=True),
            idle_timeout=self.idle_timeout,
            wall_timeout=self.wall_timeout,
            budget=self.budget.model_dump(exclude_none=True),
            mounts=tuple(self.mounts),
            role=self.role,
            tools=None if self.tools is None else tuple(self.tools),
        )


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


class ExecBody(Body):
    """What `POST …/exec` takes: exactly one of `command`, `argv` and `tool`."""

    model_config = ConfigDict(json_schema_extra=_exactly_one("command", "argv", "tool"))

    command: CommandLine | None = Field(default=None, description=_COMMAND)
    argv: Argv | None = Field(default=None, description="The words of a command.")
    tool: ToolName | None = Field(
        default=None, description="A oneshot tool: the command is as its manifest has it."
    )
    arguments: ToolArguments = Field(default_factory=dict, description="The tool's, by name.")
    cwd: Directory | None = Field(default=None, description=_CWD)
    env: Environment = Field(default_factory=dict, description="Over those of the session.")
    secrets: Secrets = Field(
        default_factory=dict,
        description="Further variables, which are treated as those of the session are.",
    )
    stdin: Annotated[str, MaxBytes(MIB)] | None = Field(
        default=None, description="What its standard input begins with."
    )
    stdin_base64: Base64 | None = Field(
        default=None, description="The same as bytes, in its place."
    )
    stdin_open: bool = Field(
        default=False, description="Its standard input stays open, to be fed later."
    )
    timeout: int | None = Field(
        default=None,
        ge=1,
        description="Seconds, up to the level's maximum; where it is not given, the level's "
        "default, and none in the background.",
    )
    background: bool = Field(
        default=False, description="Answer when it has started; it outlives the request."
    )
    permission_level: LevelName = Field(
        default=None, description="The session's new level from now on; not for a handle."
    )
    wait: Wait = Field(
        default=0, description="Seconds to wait for a person, where `tool` needs one."
    )

    @model_validator(mode="after")
    def _one_command(self) -> Self:
        _check_one(self, "command", "argv", "tool")
        if self.tool is None and self.arguments:
            raise sentence("arguments go with tool")
        if self.tool is None and self.wait:
            raise sentence("wait goes with tool")
        if self.tool is not None and self.env:
            raise sentence("env can't be given with tool")
        if self.tool is not None and not all(name.startswith("SECRET_") for name in self.secrets):
            raise sentence("the names of secrets that go with tool must begin with SECRET_")
        _check_names(self.env, self.secrets)
        _check_not_both(self, "stdin", "stdin_base64")
        return self

    def request(self) -> ExecRequest:
        """The domain's request."""
        return ExecRequest(
            argv=self.argv,
            command=self.command,
            cwd=self.cwd,
            env=self.env,
            secrets=self.secrets,
            stdin=self.stdin_base64 if self.stdin is None else self.stdin.encode(),
            stdin_open=self.stdin_open,
            timeout=self.timeout,
            background=self.background,
        )


class StdinBody(Body):
    """Text, or bytes, for a command's standard input; `close` ends it."""

    data: Annotated[str, MaxBytes(MIB)] | None = None
    data_base64: Base64 | None = None
    close: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _check_not_both(self, "data", "data_base64")
        return self

    @property
    def input(self) -> bytes:
        """What is to be fed."""
        return self.data_base64 or (self.data or "").encode()


class SignalBody(Body):
    """A signal by name (with or without SIG) or number."""

    signal: Signal


class PathBody(Body):
    """A path in the workspace."""

    path: FilePath


class LinkBody(Body):
    """A path in the workspace, and where a link there leads, relative to the link."""

    path: FilePath
    target: FilePath


class MoveBody(Body):
    """Two paths in the workspace."""

    source: FilePath
    destination: FilePath


class ArchiveBody(Body):
    """Which sessions' chains are archived: those that ended longer ago."""

    older_than: Annotated[int, Field(ge=60, le=3_153_600_000)] = Field(
        default=7 * 86_400, description="Seconds."
    )


class ExplainBody(Body):
    """What `POST /api/policies/explain` takes: whose rules, and what is asked about.

    Exactly one of `session` and `level`, and of `command`, `argv` and `path`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [_exactly_one("session", "level"), _exactly_one("command", "argv", "path")]
        }
    )

    session: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="A session's id: the level that it is pinned to."
    )
    level: Level = Field(default=None, description="A permission level's name.")
    command: CommandLine | None = Field(default=None, description=_COMMAND)
    argv: Argv | None = Field(default=None, description="The words of a command.")
    path: FilePath | None = Field(default=None, description="A path of the file operations.")
    cwd: Directory | None = Field(default=None, description=_CWD)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_one(self, "session", "level")
        _check_one(self, "command", "argv", "path")
        if self.path is not None and self.cwd is not None:
            raise sentence("cwd goes with a command: paths are relative to the workspace")
        return self
