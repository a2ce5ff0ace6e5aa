"""The query parameters of E2B's SDKs. Those that are not known are ignored."""

from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from paddock.contract.cluster import SessionKeys
from paddock.contract.fields import MetadataPairs, Moment, PageSize, Whole
from paddock.contract.requests import Query

_LENIENT = ConfigDict(extra="ignore")
_STATES = ("running", "paused")


def _states(value: Any) -> tuple[str, ...]:
    found = tuple(str(value).split(","))
    if not set(found) <= {*_STATES}:
        raise ValueError(f"must be some of {', '.join(_STATES)}, comma-separated")
    return found


def _decoded(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The SDKs encode each name and text once more."""
    return tuple((unquote(name), unquote(text)) for name, text in pairs)


class SandboxesQuery(Query):
    """Which sandboxes are listed, and in which order."""

    model_config = _LENIENT

    metadata: Annotated[MetadataPairs, AfterValidator(_decoded)] = ()
    state: Annotated[tuple[str, ...], BeforeValidator(_states)] = _STATES
    order: Literal["asc", "desc"] = "desc"
    started_after: Moment | None = Field(default=None, alias="startedAfter")
    template: Annotated[str, Field(max_length=255)] | None = None
    limit: PageSize = 100
    token: str | None = Field(default=None, max_length=128, alias="nextToken")
    # For a gateway, which knows which sessions are on a page.
    keys: SessionKeys | None = None


class MetricsQuery(Query):
    """Which metrics are shown, by their time in seconds since 1970."""

    model_config = _LENIENT

    start: Whole | None = None
    end: Whole | None = None


class SnapshotsQuery(Query):
    """Which snapshots are listed."""

    model_config = _LENIENT

    sandbox: str | None = Field(default=None, min_length=1, max_length=128, alias="sandboxID")
    name: Annotated[str, Field(max_length=128)] | None = None
    limit: PageSize = 100
    token: str | None = Field(default=None, max_length=160, alias="nextToken")
    # For a gateway, which sorts those of several nodes.
    positions: bool = False
