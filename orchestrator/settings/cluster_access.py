"""The settings that lead to a cluster's database, on machines that need not be nodes."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from orchestrator.settings.groups.cluster import checked_database, checked_name
from orchestrator.settings.settings import Environment, read_file, refusal


class ClusterAccess(BaseSettings):
    """The cluster and its database, from the same variables and file as all settings."""

    model_config = SettingsConfigDict(
        env_prefix="PADDOCK_",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    cluster: Annotated[str, AfterValidator(checked_name)] | None = Field(default=None)
    cluster_database: Annotated[SecretStr, AfterValidator(checked_database)] | None = None
    cluster_database_password_file: Path | None = None

    @field_validator("cluster", "cluster_database")
    @classmethod
    def _needed(cls, value: object) -> object:
        if value is None:
            raise ValueError("must be set, as on the cluster's nodes and gateways")
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
        """As of all settings."""
        file = InitSettingsSource(settings_cls, read_file())
        return init_settings, Environment(settings_cls), file


def in_cluster() -> bool:
    """Whether the settings of this process name a cluster. Raises: ConfigError."""
    return bool(os.environ.get("PADDOCK_CLUSTER") or read_file().get("cluster"))


def is_node() -> bool:
    """Whether they are those of a node. Raises: ConfigError."""
    return bool(os.environ.get("PADDOCK_NODE") or read_file().get("node"))


def load_access() -> ClusterAccess:
    """Raises: ConfigError that names the setting."""
    try:
        return ClusterAccess()
    except ValidationError as error:
        raise refusal(error) from None
