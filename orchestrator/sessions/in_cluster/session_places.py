"""Places of sessions: taken before a session is recorded, shown as they change, released."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from orchestrator.cluster.base import Places
from orchestrator.ground.errors import (
    ClusterUnavailableError,
    ConflictError,
    RateLimitedError,
)
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect
from orchestrator.sessions.in_cluster.session_place import claim_of, summary_of
from orchestrator.state.session import Session
from paddock.contract.words import Status

log = logging.getLogger(__name__)


class SessionPlaces:
    """The places of this node's sessions in `cluster`; '': it is in none. `node` is its name."""

    def __init__(
        self, cluster: str, node: str | None, places: Places, epoch: Callable[[], int]
    ) -> None:
        """`epoch` is that of the node, which changes when the cluster has given it up."""
        self._epoch = epoch
        self.cluster = cluster
        self._node = node
        self._places = places

    @asynccontextmanager
    async def taken(self, session: Session, quota: KeyLimits) -> AsyncGenerator[None]:
        """The session has its place in the block, which records it, and loses it if that fails.

        From then on its end releases it. Raises: the errors of `Places.claim`.
        """
        await self.take(session, quota)
        try:
            yield
        except BaseException:
            await self._give_back(session)
            raise

    async def take(self, session: Session, quota: KeyLimits) -> None:
        """Takes the place, or nothing. Raises: the errors of `Places.claim`."""
        try:
            place = await self._places.claim(claim_of(session, quota))
        except (ConflictError, RateLimitedError):
            raise
        except BaseException:  # the answer may be lost, and not the claim
            await self._give_back(session)
            raise
        if place.number:
            session.cluster, session.place = self.cluster, place.number
            session.place_epoch = place.epoch
            session.ships = session.must_ship(session.level)
            self.name(session)

    def check_kept(self, session: Session) -> None:
        """A session that is new may have missed the comparison after its node was given up.

        Raises: ClusterUnavailableError if its place is not the node's any more.
        """
        if session.place and session.place_epoch != self._epoch():
            raise ClusterUnavailableError(
                "the cluster has given this node up meanwhile: the session's id is free again"
            )

    def name(self, session: Session) -> None:
        """Has the session show where it lives; one without a place shows nothing."""
        session.node = self._node if session.place else None

    async def _give_back(self, session: Session) -> None:
        """Gives the place back, or leaves that to the next start, which compares the places."""
        try:
            await self._places.unclaim(session.key)
        except StoreError as error:
            log.warning("the next start gives back the place of %s: %s", session.id, error)

    def changed(
        self, session: Session, *, status: Status | None = None, level: str | None = None
    ) -> Effect | None:
        """Shows the status or the level that the session has from the commit on."""
        if not session.place:
            return None
        return self._places.changed(session.key, summary_of(session, status=status, level=level))

    def rehandled(self, session: Session, handle_sha256: str) -> Effect | None:
        """Gives the copies of the session its new handle: the old one is invalid everywhere."""
        if not session.recovers or not session.place:
            return None
        return self._places.rehandled(session.key, handle_sha256)

    def released(self, session: Session) -> Effect | None:
        """Releases the place of a session that ends."""
        return self._places.released(session.key, session.id) if session.place else None
