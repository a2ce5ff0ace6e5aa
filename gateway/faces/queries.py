"""Queries of lists over all nodes: those of one machine, with positions of a cluster."""

from paddock.contract.approvals import ApprovalsQuery
from paddock.contract.audit import AllEventsQuery, SearchQuery
from paddock.contract.cluster import ClusterPosition


class ClusterSearchQuery(SearchQuery):
    """`cursor` is the `next` of the previous page."""

    cursor: ClusterPosition | None = None


class ClusterApprovalsQuery(ApprovalsQuery):
    """`cursor` is the `next` of the previous page."""

    cursor: ClusterPosition | None = None


class ClusterEventsQuery(AllEventsQuery):
    """`after` is the id of the last event received, or 0: from the first one on."""

    after: ClusterPosition | None = None
