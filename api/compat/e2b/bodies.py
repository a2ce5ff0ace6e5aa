"""What E2B's SDKs send. Members that are not known are ignored, as their server does."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from paddock.contract.fields import Environment, Metadata, sentence
from paddock.contract.requests import LARGE_BODY, Body, NoBody
from paddock.contract.words import MAX_WALL_SECONDS

_LENIENT = ConfigDict(extra="ignore")
# What E2B's server does when no time is given.
DEFAULT_SECONDS = 300
RESUMED_SECONDS = 15
MOST_FORKS = 20

Seconds = Annotated[int, Field(ge=0, le=MAX_WALL_SECONDS)]
_Name = Annotated[str, Field(min_length=1, max_length=255)]
_Destination = Annotated[str, Field(min_length=1, max_length=255)]
_Destinations = Annotated[list[_Destination], Field(max_length=100)]


class NetworkBody(Body):
    """What a sandbox may reach."""

    model_config = _LENIENT
    MOST_BYTES = LARGE_BODY

    allow_out: _Destinations | None = Field(default=None, alias="allowOut")
    deny_out: _Destinations | None = Field(default=None, alias="denyOut")
    allow_internet_access: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _nothing_else(cls, value: Any) -> Any:
        """What would be needed to keep a promise, and is not there, is refused."""
        if isinstance(value, dict):
            for name, use in _UNSERVED.items():
                if value.get(name):
                    raise sentence(f"network.{name} is not served: {use}")
        return value


_UNSERVED = {
    "rules": "set a secret outside the sandbox with `paddock secrets`, or rules with `paddock "
    "egress`",
    "egressProxy": "the operator chooses the way out",
    "dnsServers": "names are resolved outside the sandbox",
    "maskRequestHost": "an open port gets the request's own host name",
    "httpsPorts": "open ports are reached by HTTP",
}


class MountBody(Body):
    """A volume, and where the sandbox has it."""

    model_config = _LENIENT

    name: _Name
    path: Annotated[str, Field(min_length=1, max_length=256)]


class ResumeBody(Body):
    """Whether a paused sandbox is resumed by its next use."""

    model_config = _LENIENT

    enabled: bool = False


class SandboxBody(Body):
    """A new sandbox."""

    model_config = _LENIENT
    MOST_BYTES = LARGE_BODY

    template: _Name = Field(alias="templateID")
    timeout: Seconds = DEFAULT_SECONDS
    auto_pause: bool = Field(default=False, alias="autoPause")
    auto_resume: ResumeBody | None = Field(default=None, alias="autoResume")
    allow_internet_access: bool | None = None
    network: NetworkBody | None = None
    metadata: Metadata | None = None
    env: Environment | None = Field(default=None, alias="envVars")
    volumes: Annotated[list[MountBody], Field(max_length=8)] | None = Field(
        default=None, alias="volumeMounts"
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_else(cls, value: Any) -> Any:
        if isinstance(value, dict):
            for name in ("mcp", "iam"):
                if value.get(name):
                    raise sentence(f"{name} is not served: a sandbox has no such gateway")
        return value


class TimeoutBody(Body):
    """Seconds from now until a sandbox ends."""

    model_config = _LENIENT

    timeout: Seconds


class ConnectBody(NoBody):
    """Seconds from now for which a sandbox must live at least."""

    model_config = _LENIENT

    timeout: Seconds = DEFAULT_SECONDS


class OlderResumeBody(NoBody):
    """Seconds from now until a resumed sandbox ends."""

    model_config = _LENIENT

    timeout: Seconds = RESUMED_SECONDS


class RefreshBody(NoBody):
    """Seconds from now for which a sandbox must live at least; by default, its time-out."""

    model_config = _LENIENT

    duration: Seconds = DEFAULT_SECONDS


class AnyBody(NoBody):
    """Members of which none matters."""

    model_config = _LENIENT


class SnapshotBody(NoBody):
    """The name of a new snapshot; by default it has none."""

    model_config = _LENIENT

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class ForkBody(NoBody):
    """How many sandboxes are made of one, and for how long they live."""

    model_config = _LENIENT

    timeout: Seconds = RESUMED_SECONDS
    count: Annotated[int, Field(ge=1, le=MOST_FORKS)] = 1


class VolumeBody(Body):
    """The name of a new volume."""

    model_config = _LENIENT

    name: _Name
