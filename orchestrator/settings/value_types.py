"""Types of single settings, which check and convert values of the environment or the file."""

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, SecretStr, StringConstraints

from orchestrator.ground.permitted_urls import check_plain_url
from orchestrator.settings.allowed_hosts import host_name
from orchestrator.settings.resolvers import check_resolver
from orchestrator.settings.values import (
    IMAGE_PATTERN,
    check_origin,
    check_secret,
    check_url,
    split_address,
)
from paddock.contract.words import LEVEL_PATTERN

_IMAGE = re.compile(IMAGE_PATTERN)
# Short enough for a label below it. The last label is no number, so that it is no address.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_USUAL_PORTS = {"http": ":80", "https": ":443"}
_DOMAIN = re.compile(rf"(?=.{{1,189}}\Z)(?:{_LABEL}\.)*(?!\d+\Z){_LABEL}", re.ASCII)


def _absolute(value: Path) -> Path:
    return Path(os.path.abspath(value))


def _address(value: str) -> str:
    split_address(value)
    host_name(value)
    return value


def _host(value: str) -> str:
    try:
        host_name(f"{value}:0")
    except ValueError:
        raise ValueError(
            f"{value!r} must be a host name without a port, an IPv6 address in brackets"
        ) from None
    return value


def _domain(value: str) -> str:
    if _DOMAIN.fullmatch(value) is None:
        raise ValueError(f"{value!r} must be a domain, such as ports.example, without a wildcard")
    return value.lower()


def _page_origin(value: str) -> str:
    """An origin as browsers send it: in small letters, without its scheme's usual port."""
    scheme, _, host = check_origin(value.lower()).partition("://")
    host_name(host)
    return f"{scheme}://{host.removesuffix(_USUAL_PORTS[scheme])}"


def _image(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise ValueError(f"{value!r} is not an image name")
    return value


def _secret(value: SecretStr) -> SecretStr:
    check_secret(value.get_secret_value())
    return value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _split(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


def _parse(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be JSON: {error}") from None


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Address = Annotated[str, AfterValidator(_address)]
Domain = Annotated[str, AfterValidator(_domain)]
HostName = Annotated[str, AfterValidator(_host)]
ImageName = Annotated[str, AfterValidator(_image)]
LevelName = Annotated[str, StringConstraints(pattern=f"^{LEVEL_PATTERN}$")]
Url = Annotated[str, AfterValidator(check_url)]
PlainUrl = Annotated[str, AfterValidator(check_plain_url)]
Origin = Annotated[str, AfterValidator(check_origin)]
PageOrigin = Annotated[str, AfterValidator(_page_origin)]
Resolver = Annotated[str, AfterValidator(check_resolver)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
# They may be added to a type: words in any case, lists in one line, and JSON in a variable.
AnyCase = BeforeValidator(_lower)
CommaSeparated = BeforeValidator(_split)
OrJson = BeforeValidator(_parse)
