"""Tells the cluster what a session uses: before it grows, and once it has changed."""

import logging
import sqlite3

from orchestrator.cluster.base import ClusterUsage
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect
from orchestrator.rules.policy.levels import SessionLimits
from orchestrator.sessions.in_cluster import workspace_sizes
from orchestrator.sessions.in_cluster.session_place import amounts_of, most_of
from orchestrator.state.session import Session

log = logging.getLogger(__name__)


class SessionGrowth:
    """Of sessions that have a place in a cluster. The others are counted here only."""

    def __init__(self, database: Database, usage: ClusterUsage) -> None:
        self._database = database
        self._usage = usage

    async def grow(self, session: Session, limits: SessionLimits, quota: KeyLimits) -> None:
        """Counts the larger of its present limits and these ones, if one of these is larger.

        Raises: RateLimitedError above the quota, ClusterUnavailableError.
        """
        now, then = amounts_of(session, session.limits), amounts_of(session, limits)
        most = most_of(now, then)
        if session.place and most != now:
            await self._usage.grow(session.owner, session.key, most, quota)

    def settling(self, session: Session) -> Effect | None:
        """An effect that counts what the session and its workspace use from now on."""
        if not session.place:
            return None

        def apply(connection: sqlite3.Connection) -> None:
            size = workspace_sizes.size_of(connection, session.workspace.id)
            amounts = amounts_of(session, session.limits, size)
            settled = self._usage.settled(session.owner, session.key, amounts)
            if settled is not None:
                settled(connection)

        return apply

    async def settle(self, session: Session) -> None:
        """Counts it after a change. A failure is logged: the next start compares the amounts."""
        settling = self.settling(session)
        if settling is None:
            return
        try:
            await self._database.write(settling)
        except StoreError as error:
            log.warning("session %s counts with earlier limits: %s", session.id, error)
