"""The operator's list of secrets that the way out adds to requests: where each comes from and goes.

The values themselves are read by `load_secret`, once, at the start.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    model_validator,
)

from orchestrator.config.errors import ConfigError
from orchestrator.egress.hosts import HostError, parse_host
from paddock.contract.words import LEVEL_PATTERN

NAME_PATTERN = r"[a-z0-9][a-z0-9_-]{0,63}"
# As long as a header field may be, and as a search for it in the record needs.
_VALUE = re.compile(r"[\x21-\x7e]{8,8192}")
_FRAMING = frozenset(
    {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding"}
)


def _host(value: str) -> str:
    try:
        name = parse_host(value)
    except HostError as error:
        raise ValueError(f"must be a host: {error}") from None
    if not isinstance(name, str):
        raise ValueError("must be a name: certificates are for names")
    return name


def _header(value: str) -> str:
    name = value.lower()
    if name in _FRAMING or name.startswith("proxy-"):
        raise ValueError("must be a field that the host reads, and not one of the connection")
    return name


_Host = Annotated[str, AfterValidator(_host)]
_Header = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$"), AfterValidator(_header)
]
_Level = Annotated[str, StringConstraints(pattern=f"^{LEVEL_PATTERN}$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class OperatorSecret(BaseModel):
    """A secret, the hosts that receive it, and the sessions that may use it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    file: Path | None = None
    # A variable of the control plane.
    environment: str | None = None
    hosts: Annotated[tuple[_Host, ...], Field(min_length=1, max_length=64)]
    levels: Annotated[tuple[_Level, ...], Field(min_length=1, max_length=64)]
    # Names of API keys whose sessions may use it; None: all.
    keys: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    # The commands' variable that has the placeholder; None: commands must be told it.
    variable: _Variable | None = None
    headers: Annotated[tuple[_Header, ...], Field(min_length=1, max_length=16)] = (
        "authorization",
        "x-api-key",
    )

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.file is None) == (self.environment is None):
            raise ValueError("must have either file or environment")
        return self


def check_names(secrets: Mapping[str, OperatorSecret]) -> None:
    """Raises: ValueError."""
    variables: dict[str, str] = {}
    for name, secret in secrets.items():
        if not re.fullmatch(NAME_PATTERN, name):
            raise ValueError(f"{name[:64]!r} is not a name of lower-case letters, digits, _ and -")
        if secret.variable is not None:
            other = variables.setdefault(secret.variable, name)
            if other != name:
                raise ValueError(f"{name}: {secret.variable} is the variable of {other} already")


def load_secret(name: str, secret: OperatorSecret) -> SecretStr:
    """Its value, without white space around it. Raises: ConfigError that does not contain it."""
    source = str(secret.file or secret.environment)
    try:
        if secret.file is not None:
            text = secret.file.read_text(encoding="ascii")
        else:
            text = os.environ[secret.environment or ""]
    except OSError as error:
        raise ConfigError(f"secrets: {name}: {source}: {error.strerror}") from None
    except KeyError:
        raise ConfigError(f"secrets: {name}: the variable {source} is not set") from None
    except UnicodeDecodeError:
        text = ""
    if not _VALUE.fullmatch(text.strip()):
        raise ConfigError(
            f"secrets: {name}: {source}: must have 8 to 8192 visible ASCII characters, and no other"
        )
    return SecretStr(text.strip())
