"""What a gateway asks of the cluster: which nodes there are, and where each session is.

Everything here only reads. Only a node writes about itself and its sessions.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from orchestrator.cluster.base import NodeReport, Summary

# The most rows of one page.
MOST_SESSIONS = 500
# The most ids that are asked for at once.
MOST_LOOKED_UP = 100


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as the cluster knows it.

    `report` is what it said with its last renewal, but `report.state` is the cluster's word: ready,
    draining or gone. `alive`: its lease has not ended by the database's clock, and it has compared
    its sessions with the cluster's. `silent_seconds` is how long ago it renewed, by the same clock.
    """

    report: NodeReport
    alive: bool
    silent_seconds: float

    @property
    def name(self) -> str:
        """Its name."""
        return self.report.name

    @property
    def takes_sessions(self) -> bool:
        """Whether new sessions may be put on it."""
        return self.alive and self.report.state == "ready"


# In a cluster there is no other kind; the host's `Node` is the machine itself.
Node = ClusterNode


class Hold(StrEnum):
    """Why an id belongs to a node."""

    LIVE = "live"  # the session lives there
    WORKSPACE = "workspace"  # it has ended, and its workspace is kept there
    RECORD = "record"  # only its record is there


class Where(NamedTuple):
    """The name of the node that an id belongs to, and why."""

    node: str
    hold: Hold


# A session's place in every list: when it was created (ISO 8601, as the node says), and its key.
Position = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SessionFilters:
    """Which sessions a page has; filters that are None or empty are off.

    `status` is a status, `live` or `ended`; None: live sessions, and those that ended after
    `ended_after` (ISO 8601). `parent` is the id of the session whose children they are; None: they
    are nobody's.
    """

    status: str | None = None
    ended_after: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    work_id: str | None = None
    parent: str | None = None
    oldest_first: bool = False


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A row of a list. `ended_at` is None while the session lives."""

    session_id: str
    session_key: str
    owner: str
    node: str
    summary: Summary
    ended_at: str | None


@dataclass(frozen=True, slots=True)
class SessionsPage:
    """Rows, and where to go on; None: there are no more."""

    items: Sequence[ListedSession]
    next: Position | None


class Directory(Protocol):
    """The cluster as gateways see it.

    Raises: ClusterUnavailableError from each method if the database does not answer.
    """

    async def nodes(self) -> Sequence[Node]:
        """All nodes that were not forgotten, by name, dead ones included."""

    def following(self) -> AsyncGenerator[Sequence[Node], None]:
        """The same at once, whenever one joins, is drained, lost or given up, and every few seconds
        with new reports, until the database does not answer.
        """

    async def places_of(self, session_ids: Collection[str]) -> Mapping[str, Where]:
        """The nodes to which requests about these ids go, at most `MOST_LOOKED_UP` of them.

        Ids that the cluster has never seen are left out; those that differ in case only are one id.
        A live session counts before a kept workspace, and this before the record of the latest
        session that had the id.
        """

    async def sessions(
        self, owner: str | None, after: Position | None, limit: int, filters: SessionFilters
    ) -> SessionsPage:
        """Up to `limit` sessions that follow that position; `owner` None: of all owners.

        Newest first, unless the filters say otherwise.
        """
