"""Settings of the engine, and of what sandboxes reach through it."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, field_validator
from pydantic_settings import NoDecode

from orchestrator.settings.operator_mounts import OperatorMount
from orchestrator.settings.operator_secrets import OperatorSecret, checked_secrets
from orchestrator.settings.resolvers import MOST_RESOLVERS
from orchestrator.settings.value_types import CommaSeparated, OrJson, Resolver
from orchestrator.settings.values import RUNTIME_PATTERN


def _once(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value))


_Resolvers = Annotated[tuple[Resolver, ...], NoDecode, CommaSeparated, AfterValidator(_once)]


class EngineSettings(BaseModel):
    """Settings of the engine, and of what sandboxes reach through it."""

    docker_host: str | None = Field(
        default=None,
        description="The engine, as `unix:///path` or `tcp://host:port`. Unset: the one that the "
        "Docker command uses.",
    )
    runtime: str | None = Field(
        default=None,
        pattern=f"^{RUNTIME_PATTERN}$",
        description="The engine's runtime for sandboxes of levels that name none. Unset: its "
        "default. Levels that it can't enforce are refused.",
    )
    resolvers: _Resolvers = Field(
        default=(),
        max_length=MOST_RESOLVERS,
        description="Name servers of sandboxes with a network: IPv4 addresses, comma-separated. "
        "Their port 53 is open to sandboxes, even on the host. Unset: those that the engine's "
        "host uses.",
    )
    mounts: Annotated[dict[str, OperatorMount], NoDecode, OrJson] = Field(
        default={},
        description="Host directories that levels and sessions may use, by name: "
        '`{"source", "target", "read_only"}`.',
    )
    secrets: Annotated[
        dict[str, OperatorSecret], NoDecode, OrJson, AfterValidator(checked_secrets)
    ] = Field(
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
        default=30,
        gt=0,
        le=600,
        allow_inf_nan=False,
        description="Time-out for a new sandbox's agent to report.",
    )

    @field_validator("docker_host")
    @classmethod
    def _check_docker_host(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"(unix|tcp|https?)://\S+", value):
            raise ValueError("must look like unix:///path or tcp://host:port")
        return value
