"""What a move of a session between nodes asks of the cluster: values and a protocol. No I/O.

The session has another key on its new node, because a key names one life and its record. The target
*offers* the key of a copy that is not active. The source *commits*: the place becomes the target's,
under that key. Each side *settles* what it does not know: no offer is left then, so nothing can be
committed any more, and the place is its own or it is not.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from orchestrator.cluster.base import Place
from orchestrator.ground.store.effect import Effect


@dataclass(frozen=True, slots=True)
class Offer:
    """A copy on this node, `session_key`, that may go on for the session `source_key`.

    That one lives on the node `source`, where its place has this number.
    """

    session_key: str
    source_key: str
    source: str
    number: int


class Fate(StrEnum):
    """A session that was given away: not active yet, active, or lost with its new node."""

    PENDING = "pending"
    THERE = "there"
    LOST = "lost"


class Moves(Protocol):
    """The places of sessions that move. Each method raises ClusterUnavailableError."""

    async def offer(self, offer: Offer) -> None:
        """Has the source's commit be possible from now on.

        Raises: ConflictError if the session's place is not the source's any more.
        """

    async def commit(self, source_key: str, number: int, session_key: str) -> None:
        """Gives this node's place to the node that offers that key: the one moment of a move.

        Raises: ConflictError if the offer has ended, or the target takes no sessions any more.
        After ClusterUnavailableError it may have been done all the same: `settle` says so.
        """

    async def settle(self, session_key: str) -> Place | None:
        """Ends every offer about that session, and returns its place here; None: it has none."""

    def arrived(self, session_key: str) -> Effect | None:
        """Tells the source that its files are not needed any more, once the session is active."""

    async def fate(self, source_key: str) -> Fate:
        """What has become of the session that was given away with that key."""
