"""Settings of where Paddock listens and what it logs."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from orchestrator.settings.allowed_hosts import host_name
from orchestrator.settings.value_types import (
    AbsolutePath,
    Address,
    AnyCase,
    CommaSeparated,
    Domain,
    HostName,
    Origin,
    PageOrigin,
)
from orchestrator.settings.values import NOWHERE, split_address

ForeignProtocol: TypeAlias = Literal["e2b", "swerex", "openhands"]


class ServerSettings(BaseModel):
    """Settings of where Paddock listens and what it logs."""

    listen: Address = Field(
        default="127.0.0.1:8700",
        description="The address on which the API listens, as `host:port`; an IPv6 host is in "
        "brackets.",
    )
    published_url: Origin | None = Field(
        default=None,
        description="The URL at which commands on this machine reach the API, if it is not the "
        "address of `PADDOCK_LISTEN`, such as that of a port that a container publishes.",
    )
    allowed_hosts: Annotated[tuple[HostName, ...], NoDecode, CommaSeparated] = Field(
        default=(),
        description="Additional host names that requests may use, comma-separated, such as "
        "the name of a reverse proxy. The address of `PADDOCK_LISTEN` is always allowed.",
    )
    cors_origins: Annotated[tuple[PageOrigin, ...], NoDecode, CommaSeparated] = Field(
        default=(),
        max_length=64,
        description="Origins of other servers whose pages may call the API with a key or handle, "
        "comma-separated, such as `https://app.example.org`. There is no wildcard.",
    )
    compat: Annotated[tuple[ForeignProtocol, ...], NoDecode, CommaSeparated] = Field(
        default=(),
        description="Interfaces of other sandboxes that are served below `/compat/`, "
        "comma-separated: `e2b`, `swerex`, `openhands`. They give their clients nothing that this "
        "API would not.",
    )
    preview_listen: str | None = Field(
        default=None,
        description="The address at which open ports of sessions are served, as `host:port`; "
        "`off`: nowhere. Unset: the host of `PADDOCK_LISTEN`, with the next port.",
    )
    preview_url: Origin | None = Field(
        default=None,
        description="The URL at which clients reach that address, such as that of a reverse proxy, "
        "without a path. Unset: the address itself.",
    )
    preview_domain: Domain | None = Field(
        default=None,
        description="The domain below which each open port has a host name of its own, "
        "`PORT-SESSION.DOMAIN`, whose names all lead to the listener. Unset: `localhost`, if "
        "clients reach the listener on this machine's loopback; else ports have none.",
    )
    log_format: Annotated[Literal["json", "console"] | None, AnyCase] = Field(
        default=None,
        description="The format of log lines. Unset: `console` on a terminal, else `json`.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], AnyCase] = Field(
        default="info", description="The lowest level that is logged."
    )
    log_file: AbsolutePath | None = Field(
        default=None,
        description="The file for log lines instead of standard output. At 16 MiB it is renamed "
        "to `FILE.1`; three such files are kept.",
    )

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on."""
        return split_address(self.listen)

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
