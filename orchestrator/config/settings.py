"""The control plane's configuration, read and checked once, then immutable."""

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from orchestrator.access.allowed_hosts import host_name
from orchestrator.access.limits import KeyLimits
from orchestrator.config.errors import ConfigError
from orchestrator.config.operator_files import read_toml
from orchestrator.config.operator_mounts import OperatorMount, check_list
from orchestrator.config.operator_secrets import OperatorSecret, check_names
from orchestrator.config.values import (
    IMAGE_PATTERN,
    NOWHERE,
    check_origin,
    check_secret,
    check_url,
    split_address,
)
from orchestrator.engine.resolvers import MOST_RESOLVERS, check_resolver
from paddock.contract.words import MAX_WALL_SECONDS

CONFIG_FILE_VARIABLE = "PADDOCK_CONFIG_FILE"
_PREFIX = "PADDOCK_"
_MIB = 1024 * 1024
_IMAGE = re.compile(IMAGE_PATTERN)
# The kernel uses the last uid for "no such user".
_MAX_UID = 2**32 - 2


def _default_workspaces(validated: dict[str, Any]) -> Path:
    """The default directory of visible workspaces."""
    named = os.environ.get("SESSION_WORKSPACES_DIR")
    return Path(named) if named else Path(validated["state_dir"]) / "session-workspaces"


class AnchorSettings(BaseModel):
    """Where heads of chains are anchored: a file, a URL or both."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    file: Path | None = None
    url: str | None = None
    interval: float = Field(default=300, ge=1, le=86_400, allow_inf_nan=False)
    key_file: Path | None = None

    @field_validator("file", "key_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else Path(os.path.abspath(value))

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None:
            check_url(value)
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.file is None and self.url is None:
            raise ValueError("needs a file or a url")
        return self


class Settings(BaseSettings):
    """Every setting. `PADDOCK_*` variables override the TOML file of `PADDOCK_CONFIG_FILE`.

    Paths are absolute, durations are in seconds, sizes are in bytes. The file may not contain other
    fields.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    listen: str = Field(
        default="127.0.0.1:8700",
        description="The address on which the API listens, as `host:port`; an IPv6 host is in "
        "brackets.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Additional host names that requests may use, comma-separated, such as "
        "the name of a reverse proxy. The address of `PADDOCK_LISTEN` is always allowed.",
    )
    preview_listen: str | None = Field(
        default=None,
        description="The address at which open ports of sessions are served, as `host:port`; "
        "`off`: nowhere. Unset: the host of `PADDOCK_LISTEN`, with the next port.",
    )
    preview_url: str | None = Field(
        default=None,
        description="The URL at which clients reach that address, such as that of a reverse proxy, "
        "without a path. Unset: the address itself.",
    )
    state_dir: Path = Field(
        default=Path("data"),
        description="The state directory: database, keys, workspaces and the sandboxes' sockets.",
    )
    workspaces_dir: Path = Field(
        default_factory=_default_workspaces,
        description="The directory that shows workspaces under their ids. Unset: "
        "`SESSION_WORKSPACES_DIR`, else `session-workspaces` in the state directory.",
    )

    workspace_quota: Literal["auto", "image", "project", "none"] = Field(
        default="auto",
        description="What limits the size of new workspaces: `image`, a separate file system in a "
        "file; `project`, quotas of the host's file system; `none`, nothing. `auto`: the first "
        "that works on this host.",
    )
    workspace_retention: int | None = Field(
        default=None,
        ge=1,
        le=3_153_600_000,
        description="How long after the end of its last session a workspace is purged. "
        "Unset: it is kept until it is purged on request.",
    )

    archive_dir: Path | None = Field(
        default=None,
        description="Where chains of ended sessions are archived. Unset: `archive` in the "
        "state directory.",
    )
    audit_retention: int | None = Field(
        default=None,
        ge=60,
        le=3_153_600_000,
        description="How long after the end of a session its audit chain is archived, with its "
        "approvals and the evidence of its terminals. Unset: on request only.",
    )

    anchor: AnchorSettings | None = Field(
        default=None,
        description="Where signed heads of audit chains are kept in addition to the ledger: "
        "`file`, to which they are appended, or `url`, to which they are posted; every `interval` "
        "seconds; `key_file`, an Ed25519 key in PEM. Unset: nowhere.",
    )

    image: str = Field(
        default="paddock/sandbox:latest", description="The default sandbox image of sessions."
    )
    images: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Additional images that sessions may request, comma-separated, besides those "
        "of `paddock images add`.",
    )

    levels_dir: Path | None = Field(
        default=None,
        description="Each `NAME.toml` of this directory is a level; it replaces the packaged one "
        "of that name.",
    )
    tools_dir: Path | None = Field(
        default=None,
        description="Tool manifests, `*.clad.toml`; they replace packaged ones of the same name.",
    )
    scope_file: Path | None = Field(
        default=None,
        description="The targets that tools may use: addresses, networks, domains. Unset: none.",
    )
    cedar_dir: Path | None = Field(
        default=None,
        description="Cedar policies, `*.cedar`, for input that is sent to tools. Unset: policies "
        "are not evaluated; set: input that no policy permits is denied.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="Certificates of authorities, in PEM, that inspected connections of the way "
        "out trust in addition to this host's.",
    )
    pip_index: str | None = Field(
        default=None,
        description="The index that pip uses in sandboxes with a network, as `PIP_INDEX_URL` of "
        "their commands, unless the level's file sets that.",
    )
    approval_webhook_url: str | None = Field(
        default=None,
        description="The URL that receives a POST for each pending approval, as "
        "`https://host/path`.",
    )
    approval_webhook_secret: SecretStr | None = Field(
        default=None,
        description="The key that signs those messages, at least 16 visible ASCII characters.",
    )
    keys_file: Path | None = Field(
        default=None, description="The keys file. Unset: `keys.toml` in the state directory."
    )
    admin_key: SecretStr | None = Field(
        default=None,
        description="The admin key, at least 16 visible ASCII characters. Unset: one is created at "
        "the first start and kept in `admin.key` in the state directory.",
    )

    max_active: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="The highest number of sandboxes. Above it, the idle session that was used "
        "least recently is suspended.",
    )
    max_creating: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Sandboxes that are started at the same time; others wait for their turn.",
    )
    key_max_creating: int = Field(default=4, ge=1, le=64, description="The same for one key.")
    warm_sandboxes: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="The highest number of sandboxes that wait, started, for sessions. Recent "
        "demand decides which ones wait, and there are none without it. 0: none.",
    )
    warm_least: dict[str, int] = Field(
        default={},
        description="How many of them wait at a level even without demand, with the default image, "
        "as `{level: number}`.",
    )
    warm_age: int = Field(
        default=3600,
        ge=1,
        description="How long a sandbox waits for a session before it is replaced.",
    )
    session_max_streams: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="Streams that clients may have open for one session: followed events and "
        "output, downloads and uploads.",
    )
    key_max_streams: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="The same for one key, and again for the handles of its sessions.",
    )
    # The limits of a key whose entry in the keys file does not set them.
    key_max_sessions: int | None = Field(
        default=None, ge=0, description="Live sessions of one key. Unset: no quota."
    )
    key_max_cpus: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Total cores of a key's live sessions. Unset: no quota.",
    )
    key_max_memory_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Total memory of a key's live sessions. Unset: no quota.",
    )
    key_max_workspaces: int | None = Field(
        default=None,
        ge=0,
        description="Workspaces of one key, including kept ones. Unset: no quota.",
    )
    key_max_workspace_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Total size of a key's workspaces, including kept ones. Unset: no quota.",
    )
    key_max_audit_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Total size of a key's sessions in the audit ledger, including ended "
        "ones until they are archived. Unset: no quota.",
    )
    key_max_egress_bytes_per_day: int | None = Field(
        default=None,
        ge=0,
        description="Bytes that a key's sessions move to and from the outside through the way out "
        "on one day, in UTC. Unset: no quota.",
    )
    key_requests_per_second: float = Field(
        default=1000, gt=0, allow_inf_nan=False, description="Requests of one key."
    )
    key_handle_requests_per_second: float = Field(
        default=200,
        gt=0,
        allow_inf_nan=False,
        description="Requests with one session's handle. All handles of a key together may make "
        "as many requests as the key.",
    )
    key_burst_seconds: float = Field(
        default=2,
        gt=0,
        le=3600,
        allow_inf_nan=False,
        description="A key or handle that was idle may make the requests of this many seconds at "
        "once.",
    )
    min_free_memory_bytes: int = Field(
        default=512 * _MIB,
        ge=0,
        description="With less memory available on the host, no sandbox is started.",
    )
    min_free_disk_bytes: int = Field(
        default=1024 * _MIB,
        ge=0,
        description="With less space on the state directory's disk, nothing new is started: no "
        "sandbox, command, terminal or file operation. With less than a quarter of it, commands "
        "are ended.",
    )
    # Outside the ranges that distributions assign to users and subordinate uids.
    uid_base: int = Field(
        default=1_900_000_000,
        ge=1000,
        le=_MAX_UID,
        description="The first uid for workspaces; each workspace has its own.",
    )
    uid_count: int = Field(default=65_536, ge=1, description="The number of uids for workspaces.")

    docker_host: str | None = Field(
        default=None,
        description="The engine, as `unix:///path` or `tcp://host:port`. Unset: the one that the "
        "Docker command uses.",
    )
    runtime: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        description="The engine's runtime for sandboxes. Unset: its default. Levels that it can't "
        "enforce are refused.",
    )
    resolvers: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        max_length=MOST_RESOLVERS,
        description="Name servers of sandboxes with a network: IPv4 addresses, comma-separated. "
        "Their port 53 is open to sandboxes, even on the host. Unset: those that the engine's "
        "host uses.",
    )
    mounts: Annotated[dict[str, OperatorMount], NoDecode] = Field(
        default={},
        description="Host directories that levels and sessions may use, by name: "
        '`{"source", "target", "read_only"}`.',
    )
    secrets: Annotated[dict[str, OperatorSecret], NoDecode] = Field(
        default={},
        description="Secrets that the way out adds to inspected requests, by name: "
        '`{"file" or "environment", "hosts", "levels", "keys", "variable", "headers"}`.',
    )
    engine_timeout: float = Field(
        default=30,
        gt=0,
        le=600,
        allow_inf_nan=False,
        description="Time-out of one call to the engine.",
    )
    engine_threads: int = Field(
        default=8, ge=1, le=64, description="Calls to the engine at the same time."
    )

    hello_timeout: float = Field(
        default=20,
        gt=0,
        le=600,
        allow_inf_nan=False,
        description="Time-out for a new sandbox's agent to report.",
    )
    terminated_ttl: int = Field(
        default=300, ge=0, description="How long an ended session remains visible."
    )
    idle_timeout: int = Field(
        default=1800,
        ge=1,
        description="How long a session may be idle before it is ended or suspended, if it does "
        "not set this.",
    )
    idle_timeout_max: int = Field(
        default=86_400, ge=1, description="The highest idle time-out that a session may set."
    )
    wall_timeout: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WALL_SECONDS,
        description="How long a session may exist, idle or not, if it does not set this. Unset: "
        "`PADDOCK_WALL_TIMEOUT_MAX`.",
    )
    wall_timeout_max: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WALL_SECONDS,
        description="The highest lifetime that a session may set. Unset: no limit.",
    )

    log_format: Literal["json", "console"] | None = Field(
        default=None,
        description="The format of log lines. Unset: `console` on a terminal, else `json`.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that is logged."
    )

    log_file: Path | None = Field(
        default=None,
        description="The file for log lines instead of standard output. At 16 MiB it is renamed "
        "to `FILE.1`; three such files are kept.",
    )

    @property
    def key_limits(self) -> KeyLimits:
        """The limits of a key whose entry sets none."""
        return KeyLimits(
            self.key_max_sessions,
            self.key_max_cpus,
            self.key_max_memory_bytes,
            self.key_max_workspaces,
            self.key_max_workspace_bytes,
            self.key_requests_per_second,
            self.key_handle_requests_per_second,
            self.key_max_audit_bytes,
            self.key_max_egress_bytes_per_day,
        )

    @property
    def keys_path(self) -> Path:
        """The keys file: the configured one, or `keys.toml` in the state directory."""
        return self.keys_file or self.state_dir / "keys.toml"

    @property
    def images_path(self) -> Path:
        """The file of further images that sessions may request, which commands edit."""
        return self.state_dir / "images.toml"

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on."""
        return split_address(self.listen)

    @property
    def own_dirs(self) -> tuple[Path, ...]:
        """Directories that no sandbox may get."""
        return self.state_dir, self.workspaces_dir, self.archive_path

    @property
    def archive_path(self) -> Path:
        """The directory of archives: the configured one, or one in the state directory."""
        return self.archive_dir or self.state_dir / "archive"

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        split_address(value)
        host_name(value)
        return value

    @field_validator("preview_listen")
    @classmethod
    def _check_preview(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or value == NOWHERE:
            return value
        port = split_address(value)[1]
        host_name(value)
        if port and port == split_address(info.data.get("listen", "-:0"))[1]:
            raise ValueError("needs another port than the API: pages must not be of its origin")
        return value

    @field_validator("preview_url")
    @classmethod
    def _check_preview_url(cls, value: str | None) -> str | None:
        if value is not None:
            check_origin(value)
        return value

    @field_validator(
        "state_dir",
        "workspaces_dir",
        "archive_dir",
        "levels_dir",
        "keys_file",
        "tools_dir",
        "scope_file",
        "cedar_dir",
        "log_file",
    )
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else Path(os.path.abspath(value))

    @field_validator("log_format", "log_level", "workspace_quota", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            try:
                host_name(f"{name}:0")
            except ValueError:
                raise ValueError(
                    f"{name!r} must be a host name without a port, an IPv6 address in brackets"
                ) from None
        return value

    @field_validator("resolvers")
    @classmethod
    def _check_resolvers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(check_resolver, value)))

    @field_validator("images", "allowed_hosts", "resolvers", mode="before")
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("image", "images")
    @classmethod
    def _check_images(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for name in (value,) if isinstance(value, str) else value:
            if not _IMAGE.fullmatch(name):
                raise ValueError(f"{name!r} is not an image name")
        return value

    @field_validator("approval_webhook_url", "pip_index")
    @classmethod
    def _check_urls(cls, value: str | None) -> str | None:
        if value is not None:
            check_url(value)
        return value

    @field_validator("approval_webhook_secret")
    @classmethod
    def _check_webhook_secret(cls, value: SecretStr | None, info: ValidationInfo) -> Any:
        if value is not None:
            check_secret(value.get_secret_value())
        elif info.data.get("approval_webhook_url") is not None:
            raise ValueError("must be set with approval_webhook_url: messages are signed")
        return value

    @field_validator("admin_key")
    @classmethod
    def _check_admin_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            check_secret(value.get_secret_value())
        return value

    @field_validator("warm_least")
    @classmethod
    def _check_warm(cls, value: dict[str, int], info: ValidationInfo) -> dict[str, int]:
        if any(number < 0 for number in value.values()):
            raise ValueError("must not have negative numbers")
        if sum(value.values()) > info.data.get("warm_sandboxes", 0):
            raise ValueError("may not be more than warm_sandboxes together")
        return value

    @field_validator("uid_count")
    @classmethod
    def _check_uids(cls, value: int, info: ValidationInfo) -> int:
        if info.data.get("uid_base", 0) + value - 1 > _MAX_UID:
            raise ValueError(f"the last uid would be over {_MAX_UID}")
        return value

    @field_validator("idle_timeout_max")
    @classmethod
    def _check_idle(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("idle_timeout", 0):
            raise ValueError("may not be below idle_timeout")
        return value

    @field_validator("wall_timeout_max")
    @classmethod
    def _check_wall(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < (info.data.get("wall_timeout") or 0):
            raise ValueError("may not be below wall_timeout")
        return value

    @field_validator("docker_host")
    @classmethod
    def _check_docker_host(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"(unix|tcp|https?)://\S+", value):
            raise ValueError("must look like unix:///path or tcp://host:port")
        return value

    @field_validator("mounts", "secrets", mode="before")
    @classmethod
    def _parse_tables(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"must be JSON: {error}") from None

    @field_validator("mounts")
    @classmethod
    def _check_mounts(
        cls, value: dict[str, OperatorMount], info: ValidationInfo
    ) -> dict[str, OperatorMount]:
        data = info.data
        names = ("state_dir", "workspaces_dir", "archive_dir")
        own = [data[name] for name in names if data.get(name) is not None]
        check_list(value, own, data.get("docker_host"))
        return value

    @field_validator("secrets")
    @classmethod
    def _check_secrets(cls, value: dict[str, OperatorSecret]) -> dict[str, OperatorSecret]:
        check_names(value)
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order of precedence: arguments, the environment, the file."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, _read_file())


def load_settings() -> Settings:
    """This process's settings. Raises: ConfigError."""
    try:
        return Settings()
    except ValidationError as error:
        # The exception is not chained, because the refused value may be a secret.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise ConfigError(_describe(first["loc"], first["type"], first["msg"])) from None


def ensure_state_dir(path: Path) -> None:
    """Creates the state directory if it is missing, readable by its owner only."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{_PREFIX}STATE_DIR: {path}: {error.strerror}") from None


def _read_file() -> dict[str, Any]:
    path = os.environ.get(CONFIG_FILE_VARIABLE)
    return read_toml(Path(path)) if path else {}


def _describe(location: tuple[int | str, ...], kind: str, message: str) -> str:
    name = ".".join(str(part) for part in location)
    variable = f"{_PREFIX}{location[0]}".upper()
    path = os.environ.get(CONFIG_FILE_VARIABLE)
    in_environment = any(key.upper() == variable and os.environ[key] for key in os.environ)
    where = f"{path}: {name}" if path and not in_environment else variable
    if len(location) > 1 and where == variable:
        where = f"{where}: {'.'.join(map(str, location[1:]))}"
    if kind == "extra_forbidden":
        return f"{where}: no such setting"
    return f"{where}: {message.removeprefix('Value error, ')}"
