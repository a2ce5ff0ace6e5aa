"""The operator's list of exports: where the record is sent, and in which form."""

import re
import ssl
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr, model_validator

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.operator_files import read_secret
from orchestrator.settings.value_types import AbsolutePath
from orchestrator.settings.values import check_encrypted, endpoint_parts, split_address
from paddock.contract.words import OUTSIDE_NAME

MOST_EXPORTS = 16
_MOST_TOKEN_BYTES = 8192
_TOKEN = re.compile(r"[\x21-\x7e]+")
_KINDS = ("file", "syslog", "url")
_ONLY = {
    "token_file": "url",
    "body": "url",
    "gzip": "url",
    "ca_file": "syslog or url",
    "cert_file": "syslog or url",
    "key_file": "syslog or url",
}


def _collector(value: str) -> str:
    host, port = split_address(value)
    if not re.fullmatch(r"[A-Za-z0-9.:_-]{1,255}", host) or port == 0:
        raise ValueError("must be host:port, as in logs.example.com:6514")
    return value


def _endpoint(value: str) -> str:
    parts = endpoint_parts(value)
    if parts.fragment:
        raise ValueError("must not have a fragment")
    check_encrypted(parts)
    return value


class OperatorExport(BaseModel):
    """An export: a file, a collector of syslog over TLS, or a URL."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    file: AbsolutePath | None = None
    syslog: Annotated[str, AfterValidator(_collector)] | None = None
    url: Annotated[str, AfterValidator(_endpoint)] | None = None
    format: Literal["ocsf", "record"] = "ocsf"
    # A new export begins with everything that is on record, or with what comes.
    since: Literal["start", "now"] = "start"
    token_file: AbsolutePath | None = None
    body: Literal["array", "lines"] = "array"
    gzip: bool = False
    # The authorities that count; None: those of this host.
    ca_file: AbsolutePath | None = None
    cert_file: AbsolutePath | None = None
    key_file: AbsolutePath | None = None

    @model_validator(mode="after")
    def _one_destination(self) -> Self:
        kinds = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError("must have one of file, syslog and url")
        for name, needs in _ONLY.items():
            if name in self.model_fields_set and kinds[0] not in needs:
                raise ValueError(f"{name} is for {needs} only: remove it")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("must have both cert_file and key_file, or neither")
        return self


def checked_exports(exports: dict[str, OperatorExport]) -> dict[str, OperatorExport]:
    """Returns them. Raises: ValueError for their number, a name, or a file of two."""
    if len(exports) > MOST_EXPORTS:
        raise ValueError(f"there may be at most {MOST_EXPORTS}")
    for name in exports:
        if not re.fullmatch(OUTSIDE_NAME, name):
            raise ValueError(f"{name[:64]!r} is not a name of lower-case letters, digits, _ and -")
    files = [export.file for export in exports.values() if export.file is not None]
    if len(files) != len(set(files)):
        raise ValueError("two exports have the same file: give each its own")
    return exports


def load_token(name: str, export: OperatorExport) -> SecretStr | None:
    """Its present bearer token; may block. Raises: ConfigError that does not contain it."""
    if export.token_file is None:
        return None
    return read_secret(f"exports: {name}", export.token_file, _check_token, _MOST_TOKEN_BYTES)


def load_tls(name: str, export: OperatorExport) -> ssl.SSLContext:
    """Its certificates as they are now; may block. Raises: ConfigError that names the file."""
    place, path = f"exports: {name}", Path()
    try:
        path = export.ca_file or path
        context = ssl.create_default_context(cafile=export.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if export.cert_file is not None and export.key_file is not None:
            path = export.cert_file
            # Without a password: nobody is there to type one.
            context.load_cert_chain(export.cert_file, export.key_file, password=partial(str, ""))
    except ssl.SSLError:
        raise ConfigError(
            f"{place}: {path}: must be PEM, with the key that belongs to it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{place}: {path}: {error.strerror}") from None
    return context


def _check_token(text: str) -> None:
    if not _TOKEN.fullmatch(text) or len(text) > _MOST_TOKEN_BYTES:
        raise ValueError(f"must have 1 to {_MOST_TOKEN_BYTES} visible ASCII characters")
