"""The requests of OpenHands. Members that are not known are ignored, as newer clients have more."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from paddock.contract.requests import LARGEST_BODY, Body, Query


class StartBody(Body):
    """A command for bash. `timeout` is in seconds."""

    MOST_BYTES = LARGEST_BODY

    model_config = ConfigDict(extra="ignore")

    command: str
    cwd: str | None = None
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class _Query(Query):
    model_config = ConfigDict(extra="ignore")


class EventsQuery(_Query):
    """Which events of which command."""

    kind__eq: str | None = None
    command_id__eq: Annotated[str, Field(max_length=128)] | None = None
    sort_order: Literal["TIMESTAMP", "TIMESTAMP_DESC"] = "TIMESTAMP"
    order__gt: Annotated[int, Field(ge=-1, le=10**15)] | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 100


class PlaceQuery(_Query):
    """A path."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]


class GitQuery(PlaceQuery):
    """A path, and what it is compared with; by default the last commit."""

    ref: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/@{}~^+-]{0,199}$")] | None = None
