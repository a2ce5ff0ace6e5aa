"""The operator's list of secrets that the way out adds to requests: their sources and receivers.

The values themselves are read by `load_secret`, at the start and when a file changes.
"""

import os
import re
from collections.abc import Collection, Mapping
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

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.hosts import HostError, parse_host
from orchestrator.settings.operator_files import read_secret
from paddock.contract.words import LEVEL_PATTERN, OUTSIDE_NAME, OUTSIDE_SECRET

# A header field sets the most, and the search for secrets in the record the least.
_LEAST, _MOST = OUTSIDE_SECRET
_VALUE = re.compile(rf"[\x21-\x7e]{{{_LEAST},{_MOST}}}")
VALUE_RULE = f"must have {_LEAST} to {_MOST} visible ASCII characters, and no other"
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


class SecretUse(BaseModel):
    """Which requests a secret is for."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    hosts: Annotated[tuple[_Host, ...], Field(min_length=1, max_length=64)]
    # Levels whose sessions may use it; None: all.
    levels: Annotated[tuple[_Level, ...], Field(min_length=1, max_length=64)] | None = None
    # The commands' variable with the placeholder; None: there is no such variable.
    variable: _Variable | None = None
    headers: Annotated[tuple[_Header, ...], Field(min_length=1, max_length=16)] = (
        "authorization",
        "x-api-key",
    )


class OperatorSecret(SecretUse):
    """A secret, the hosts that receive it, and the sessions that may use it."""

    file: Path | None = None
    # A variable of the control plane.
    environment: str | None = None
    levels: Annotated[tuple[_Level, ...], Field(min_length=1, max_length=64)]
    # Names of API keys whose sessions may use it; None: all.
    keys: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.file is None) == (self.environment is None):
            raise ValueError("must have either file or environment")
        return self


def unknown_level(use: SecretUse, levels: Collection[str]) -> tuple[str, str] | None:
    """The place of the first unknown level, and a message; None if all are known."""
    for number, name in enumerate(use.levels or ()):
        if name not in levels:
            return f"levels.{number}", f"must be one of {', '.join(levels)}"
    return None


def check_levels(secrets: Mapping[str, OperatorSecret], levels: Collection[str]) -> None:
    """Raises: ConfigError if a secret is for an unknown level, because nobody could use it."""
    for name, secret in secrets.items():
        if (found := unknown_level(secret, levels)) is not None:
            place, message = found
            raise ConfigError(f"secrets: {name}.{place}: {message}")


def checked_secrets(secrets: dict[str, OperatorSecret]) -> dict[str, OperatorSecret]:
    """Returns them. Raises: ValueError for a name, or for a variable of two secrets."""
    variables: dict[str, str] = {}
    for name, secret in secrets.items():
        if not re.fullmatch(OUTSIDE_NAME, name):
            raise ValueError(f"{name[:64]!r} is not a name of lower-case letters, digits, _ and -")
        if secret.variable is not None:
            other = variables.setdefault(secret.variable, name)
            if other != name:
                raise ValueError(f"{name}: {secret.variable} is the variable of {other} already")
    return secrets


def load_secret(name: str, secret: OperatorSecret) -> SecretStr:
    """Its value, without white space around it. Raises: ConfigError that does not contain it."""
    if secret.file is not None:
        return read_secret(f"secrets: {name}", secret.file, checked_value, 2 * _MOST)
    variable = secret.environment or ""
    try:
        return checked_value(os.environ[variable].strip())
    except KeyError:
        raise ConfigError(f"secrets: {name}: the variable {variable} is not set") from None
    except ValueError as error:
        reason = str(error)
    raise ConfigError(f"secrets: {name}: {variable}: {reason}")


def checked_value(text: str) -> SecretStr:
    """The value of a secret. Raises: ValueError that does not contain it."""
    if not _VALUE.fullmatch(text):
        raise ValueError(VALUE_RULE)
    return SecretStr(text)
