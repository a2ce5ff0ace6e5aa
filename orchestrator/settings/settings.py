"""The control plane's configuration, read and checked once, then immutable."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.groups.access import AccessSettings
from orchestrator.settings.groups.capacity import CapacitySettings
from orchestrator.settings.groups.cluster import ClusterSettings
from orchestrator.settings.groups.engine import EngineSettings
from orchestrator.settings.groups.exports import ExportSettings
from orchestrator.settings.groups.lifetimes import LifetimeSettings
from orchestrator.settings.groups.places import PlaceSettings
from orchestrator.settings.groups.rules import RuleSettings
from orchestrator.settings.groups.server import ServerSettings
from orchestrator.settings.groups.telemetry import TelemetrySettings
from orchestrator.settings.operator_files import read_regular, read_toml
from orchestrator.settings.operator_mounts import OperatorMount, check_list
from orchestrator.settings.removed_settings import check_removed
from orchestrator.settings.toml_lines import line_of
from sandbox_agent.decide.facilities import WITHOUT

CONFIG_FILE_VARIABLE = "PADDOCK_CONFIG_FILE"
_PREFIX = "PADDOCK_"


class Environment(EnvSettingsSource):
    """The environment. A value that is not JSON stays a text, which its setting then refuses."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """The value in JSON, or the text."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError):
            return value


# The settings of the last group come first.
class Settings(
    ClusterSettings,
    TelemetrySettings,
    ExportSettings,
    LifetimeSettings,
    EngineSettings,
    CapacitySettings,
    AccessSettings,
    RuleSettings,
    PlaceSettings,
    ServerSettings,
    BaseSettings,
):
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

    @property
    def keys_path(self) -> Path:
        """The keys file: the configured one, or `keys.toml` in the state directory."""
        return self.keys_file or self.state_dir / "keys.toml"

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
        return (
            init_settings,
            Environment(settings_cls),
            InitSettingsSource(settings_cls, read_file()),
        )


def load_settings() -> Settings:
    """This process's settings. Raises: ConfigError."""
    check_removed((name for name, value in os.environ.items() if value), _PREFIX)
    if os.environ.get(WITHOUT):
        raise ConfigError(f"{WITHOUT} is for tests, which hide what the kernel has: unset it")
    try:
        return Settings()
    except ValidationError as error:
        # The exception is not chained, because the refused value may be a secret.
        raise refusal(error) from None


def refusal(error: ValidationError) -> ConfigError:
    """What is wrong with the first refused setting, without its value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return ConfigError(_describe(first["loc"], first["type"], first["msg"]))


def ensure_state_dir(path: Path) -> None:
    """Creates the state directory if it is missing, readable by its owner only."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{_PREFIX}STATE_DIR: {path}: {error.strerror}") from None


def read_file() -> dict[str, Any]:
    """The settings in the file of PADDOCK_CONFIG_FILE, if it is set. Raises: ConfigError."""
    path = os.environ.get(CONFIG_FILE_VARIABLE)
    values = read_toml(Path(path)) if path else {}
    check_removed(values)
    return values


def _place(path: Path, location: tuple[int | str, ...]) -> str:
    """The file, and the line of what is refused, if it can be found."""
    with suppress(OSError, UnicodeError):
        line = line_of(read_regular(path).decode(), location)
        if line is not None:
            return f"{path}: line {line}"
    return str(path)


def _describe(location: tuple[int | str, ...], kind: str, message: str) -> str:
    name = ".".join(str(part) for part in location)
    variable = f"{_PREFIX}{location[0]}".upper()
    path = os.environ.get(CONFIG_FILE_VARIABLE)
    in_environment = any(key.upper() == variable and os.environ[key] for key in os.environ)
    where = variable
    if path and not in_environment:
        where = f"{_place(Path(path), location)}: {name}"
    if len(location) > 1 and where == variable:
        where = f"{where}: {'.'.join(map(str, location[1:]))}"
    if kind == "extra_forbidden":
        return f"{where}: no such setting"
    return f"{where}: {message.removeprefix('Value error, ')}"
