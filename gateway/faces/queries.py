"""Queries of lists over all nodes: those of one machine, with positions of a cluster."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from paddock.contract.approvals import ApprovalsQuery
from paddock.contract.audit import AllEventsQuery, SearchQuery
from paddock.contract.cluster import ClusterPosition
from paddock.contract.fields import Moment, PageSize
from paddock.contract.requests import Query


class ClusterSearchQuery(SearchQuery):
    """`cursor` is the `next` of the previous page."""

    cursor: ClusterPosition | None = None


class ClusterApprovalsQuery(ApprovalsQuery):
    """`cursor` is the `next` of the previous page."""

    cursor: ClusterPosition | None = None


class ClusterEventsQuery(AllEventsQuery):
    """`after` is the id of the last event received, or 0: from the first one on."""

    after: ClusterPosition | None = None


class E2bSandboxesQuery(Query):
    """Which of E2B's sandboxes are listed, as the database can tell; nodes check the rest."""

    model_config = ConfigDict(extra="ignore")

    order: Literal["asc", "desc"] = "desc"
    started_after: Moment | None = Field(default=None, alias="startedAfter")
    template: Annotated[str, Field(max_length=255)] | None = None
    limit: PageSize = 100
    token: str | None = Field(default=None, max_length=128, alias="nextToken")


class E2bSnapshotsQuery(Query):
    """Which snapshots are listed."""

    model_config = ConfigDict(extra="ignore")

    limit: PageSize = 100
    token: str | None = Field(default=None, max_length=160, alias="nextToken")
