"""What requests look like: bodies and query parameters, and their bounds."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from orchestrator.policy.levels import LEVEL_NAMES
from orchestrator.sessions.requests import ExecRequest, NewSession

_KIB = 1024
_MIB = 1024 * _KIB
_LEVELS = "|".join(LEVEL_NAMES)
_DIGITS = re.compile(r"[0-9]{1,18}")
MAX_ARGV_BYTES = _MIB
SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "TERM": 15} | {
    "CONT": 18,
    "STOP": 19,
}


def sentence(text: str) -> PydanticCustomError:
    """An error whose message is the whole detail of the problem document."""
    return PydanticCustomError("sentence", "{text}", {"text": text})


def _max_bytes(limit: int) -> AfterValidator:
    def check(value: str) -> str:
        if len(value.encode()) > limit:
            raise ValueError(f"must have at most {limit} bytes")
        return value

    return AfterValidator(check)


def _level_name(value: Any) -> Any:
    if value is not None and value not in LEVEL_NAMES:
        raise sentence(f"permission_level must be {_LEVELS}")
    return value


def _digits(value: Any) -> int:
    """Query parameters are text: digits only, no sign, no white space, no underscore."""
    if not isinstance(value, str) or not _DIGITS.fullmatch(value):
        raise ValueError("must be a whole number")
    return int(value)


def _truth(value: Any) -> bool:
    if value not in ("true", "false"):
        raise ValueError("must be true or false")
    return bool(value == "true")


def _signal_number(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in SIGNALS.values():
        return value
    number = SIGNALS.get(value.removeprefix("SIG")) if isinstance(value, str) else None
    if number is None:
        raise ValueError(f"must be one of {', '.join(SIGNALS)}, or its number")
    return number


def _label(value: Any) -> tuple[str, str]:
    key, colon, wanted = str(value).partition(":")
    if not key or not colon:
        raise ValueError("must be key:value")
    return key, wanted


LevelName = Annotated[str | None, BeforeValidator(_level_name)]
Whole = Annotated[int, BeforeValidator(_digits)]
PageSize = Annotated[Whole, Field(ge=1, le=1000)]
Truth = Annotated[bool, BeforeValidator(_truth)]
_LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{1,63}$")]
_Labels = dict[_LabelKey, Annotated[str, Field(max_length=256)]]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,255}$")]
_Environment = dict[_Variable, Annotated[str, _max_bytes(32 * _KIB)]]
_Argument = Annotated[str, _max_bytes(128 * _KIB)]
# Paths longer than this can't be opened on Linux.
FilePath = Annotated[str, Field(min_length=1), _max_bytes(4096)]


class Body(BaseModel):
    """A request body: JSON types as they are, no other members."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class NoBody(Body):
    """Nothing, or an empty object."""


class LimitsBody(Body):
    """Lower limits than the level's: cores, bytes and processes."""

    cpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    memory_bytes: int | None = Field(default=None, ge=1)
    pids: int | None = Field(default=None, ge=1)
    tmp_bytes: int | None = Field(default=None, ge=1)
    workspace_bytes: int | None = Field(default=None, ge=1)


class SessionBody(Body):
    """What `POST /api/sessions` takes; `idle_timeout` in seconds."""

    id: Annotated[str, Field(min_length=1)] | None = None
    permission_level: LevelName = None
    image: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    labels: _Labels = Field(default_factory=dict, max_length=64)
    env: _Environment = Field(default_factory=dict, max_length=256)
    limits: LimitsBody = Field(default_factory=LimitsBody)
    idle_timeout: int | None = Field(default=None, ge=1)

    def request(self, session_id: str | None = None) -> NewSession:
        """The domain's request, for that id when the path names one."""
        return NewSession(
            id=session_id or self.id,
            permission_level=self.permission_level,
            image=self.image,
            labels=self.labels,
            env=self.env,
            limits=self.limits.model_dump(exclude_none=True),
            idle_timeout=self.idle_timeout,
        )


class NamedSessionBody(SessionBody):
    """What `PUT /api/sessions/{id}` takes: the path has the id."""

    @model_validator(mode="after")
    def _no_other_id(self) -> Self:
        if self.id is not None:
            raise sentence("id is in the path, not in the body")
        return self


class SettingsBody(Body):
    """What `PUT …/settings` takes: unknown members of `settings` are dropped.

    `workspace` is the control plane's: what a client says about it is only recorded.
    """

    settings: dict[str, Any] = Field(default_factory=dict, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, value: Any) -> Any:
        settings = value.get("settings")
        if not isinstance(settings, dict):
            raise sentence("body.settings must be an object")
        if "permission_level" in settings and settings["permission_level"] not in LEVEL_NAMES:
            raise sentence(f"settings.permission_level must be {_LEVELS}")
        if not isinstance(settings.get("workspace", {}), dict):
            raise sentence("settings.workspace must be an object")
        return value

    @property
    def permission_level(self) -> str | None:
        """The level asked for, or None to keep the current one."""
        return self.settings.get("permission_level")

    @property
    def ignored(self) -> dict[str, Any]:
        """The client's wishes for the workspace, which the control plane owns."""
        return dict(self.settings.get("workspace", {}))


class ExecBody(Body):
    """What `POST …/exec` takes; `timeout` in seconds."""

    command: Annotated[str, _max_bytes(64 * _KIB)] | None = None
    argv: Annotated[list[_Argument], Field(min_length=1, max_length=4096)] | None = None
    cwd: Annotated[str, _max_bytes(4096)] | None = None
    env: _Environment = Field(default_factory=dict, max_length=256)
    stdin: Annotated[str, _max_bytes(_MIB)] | None = None
    stdin_open: bool = False
    timeout: int | None = Field(default=None, ge=1)
    background: bool = False
    permission_level: LevelName = None

    @field_validator("argv")
    @classmethod
    def _check_size(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and sum(len(item.encode()) for item in value) > MAX_ARGV_BYTES:
            raise ValueError(f"must have at most {MAX_ARGV_BYTES} bytes in all")
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.command is None) == (self.argv is None):
            raise sentence("exactly one of command and argv must be given")
        return self

    def request(self) -> ExecRequest:
        """The domain's request."""
        return ExecRequest(
            argv=self.argv,
            command=self.command,
            cwd=self.cwd,
            env=self.env,
            stdin=self.stdin,
            stdin_open=self.stdin_open,
            timeout=self.timeout,
            background=self.background,
        )


class StdinBody(Body):
    """Text for a command's standard input; `close` ends it."""

    data: Annotated[str, _max_bytes(_MIB)] = ""
    close: bool = False


class SignalBody(Body):
    """A signal by name (with or without SIG) or number."""

    signal: Annotated[int, BeforeValidator(_signal_number)]


class PathBody(Body):
    """A path in the workspace."""

    path: FilePath


class MoveBody(Body):
    """Two paths in the workspace."""

    source: FilePath
    destination: FilePath


class Query(BaseModel):
    """Query parameters: no others than these, each at most once."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class NoQuery(Query):
    """No parameters."""


class SessionsQuery(Query):
    """`label` as key:value; `cursor` is the `next` of the page before."""

    status: Literal["active", "paused", "completed", "aborted", "budget-exceeded"] | None = None
    label: Annotated[tuple[str, str], BeforeValidator(_label)] | None = None
    limit: PageSize = 100
    cursor: Annotated[str, Field(max_length=128)] | None = None


class CloseQuery(Query):
    """`purge` removes the workspace as well."""

    purge: Truth = False


class OutputQuery(Query):
    """`after` counts bytes of output that are not wanted again."""

    after: Whole = 0


class PathQuery(Query):
    """A path in the workspace."""

    path: FilePath


class WriteQuery(PathQuery):
    """Whether what is sent replaces the file or goes to its end."""

    mode: Literal["overwrite", "append"] = "overwrite"


class ListQuery(Query):
    """A directory, and how many levels below it."""

    path: FilePath = "."
    depth: Annotated[Whole, Field(ge=1, le=64)] = 1


class EventsQuery(Query):
    """The position of the last event that was seen: `seq` in a session, `id` in all."""

    after: Whole | None = None


class AuditQuery(Query):
    """Filters over a session's events."""

    after: Whole = 0
    limit: PageSize = 100
    turn: Whole | None = None
    operation: Annotated[str, Field(max_length=64)] | None = None
    decision: Literal["allow", "deny", "pending"] | None = None


class ExportQuery(Query):
    """One JSON text per line is the only format."""

    format: Literal["jsonl"] = "jsonl"


class VerifyQuery(Query):
    """A place in the chain that was noted before: both or neither."""

    seq: Whole | None = None
    hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
