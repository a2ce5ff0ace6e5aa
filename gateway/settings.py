"""A gateway's settings, read and checked once, then immutable."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic.functional_validators import AfterValidator
from pydantic_settings import BaseSettings, SettingsConfigDict

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.groups.cluster import checked_database, checked_name
from orchestrator.settings.value_types import AbsolutePath, AnyCase, Domain

_PREFIX = "PADDOCK_"
_Port = Annotated[int, Field(ge=0, le=65535)]
_Cluster = Annotated[str, AfterValidator(checked_name)]
_Database = Annotated[SecretStr, AfterValidator(checked_database)]


class GatewaySettings(BaseSettings):
    """Every setting of a gateway. Files are PEM, and absolute paths."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    cluster: _Cluster = Field(description="The name of the cluster, as its nodes have it.")
    cluster_database: _Database = Field(
        description="The cluster's database: postgresql://user@host:5432/database."
    )
    cluster_database_password_file: AbsolutePath | None = Field(
        default=None, description="The file with the password, if it is not in the URL."
    )
    gateway_cert: AbsolutePath = Field(
        description="The certificate that nodes see, with the name `gateway`."
    )
    gateway_key: AbsolutePath = Field(description="The key of that certificate.")
    gateway_ca: AbsolutePath = Field(description="The authority of the nodes' certificates.")
    gateway_host: str = Field(default="127.0.0.1", description="The address to listen on.")
    gateway_port: _Port = Field(default=8700, description="The port of the API.")
    gateway_tls_cert: AbsolutePath | None = Field(
        default=None, description="The certificate that clients see. Unset: plain HTTP."
    )
    gateway_tls_key: AbsolutePath | None = Field(
        default=None, description="The key of that certificate."
    )
    gateway_preview_port: _Port | None = Field(
        default=None, description="The port at which ports of sessions are served. Unset: nowhere."
    )
    gateway_preview_domain: Domain | None = Field(
        default=None,
        description="The domain below which each of them has a host name, as the nodes have it.",
    )
    gateway_drain_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = Field(
        default=30.0, description="How long open requests and streams may take at the end."
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], AnyCase] = Field(
        default="info", description="The lowest level that is logged."
    )
    log_format: Annotated[Literal["json", "console"] | None, AnyCase] = Field(
        default=None, description="Unset: `console` on a terminal, else `json`."
    )
    log_file: AbsolutePath | None = Field(
        default=None, description="The file for log lines instead of standard output."
    )

    @property
    def admin_key(self) -> SecretStr | None:
        """A gateway has no credential of its own."""
        return None

    @field_validator("gateway_tls_key")
    @classmethod
    def _both(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if (value is None) != (info.data.get("gateway_tls_cert") is None):
            raise ValueError("PADDOCK_GATEWAY_TLS_CERT and _KEY are set together, or not at all")
        return value

    @field_validator("gateway_preview_port")
    @classmethod
    def _another(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value and value == info.data.get("gateway_port"):
            raise ValueError("must be another port: pages of sandboxes get an origin of their own")
        return value


def load_gateway_settings() -> GatewaySettings:
    """This process's settings. Raises: ConfigError."""
    try:
        given: dict[str, Any] = {}
        return GatewaySettings(**given)
    except ValidationError as error:
        # The exception is not chained, because the refused value may be a secret.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = f"{_PREFIX}{first['loc'][0]}".upper()
        if first["type"] == "missing":
            field = GatewaySettings.model_fields[str(first["loc"][0])]
            raise ConfigError(f"{name}: must be set: {field.description}") from None
        raise ConfigError(f"{name}: {first['msg'].removeprefix('Value error, ')}") from None
