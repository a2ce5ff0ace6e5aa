"""Removes what the cluster has of sessions that ended long ago, in portions."""

import logging
from datetime import UTC, datetime, timedelta

from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.repeating import Repeating
from orchestrator.ground.events import time_text
from orchestrator.ground.tasks import TaskName

log = logging.getLogger(__name__)

# Sessions and events that one transaction removes, so that it locks nothing for long.
MOST_SESSIONS = 100
MOST_ROWS = 2_000
# Each node looks this often.
_PAUSE_SECONDS = 600.0
_ROUND_SECONDS = 3600.0
_OLD = """
SELECT session_key FROM records WHERE ended_at < $1 ORDER BY ended_at LIMIT $2
FOR UPDATE SKIP LOCKED
"""
_EVENTS = """
DELETE FROM shipped WHERE (session_key, seq) IN (
    SELECT session_key, seq FROM shipped WHERE session_key = ANY($1::text[]) LIMIT $2
)
"""


class OldRows:
    """Removes what the cluster has of sessions that ended long ago."""

    def __init__(self, database: ClusterDatabase, seconds: int) -> None:
        """`seconds` is how long after its end a session is kept."""
        self._database = database
        self._seconds = seconds

    async def prune(self) -> bool:
        """Removes a portion of them; whether there may be more.

        A session's row goes after its events, and other nodes take other sessions meanwhile.
        Raises: ClusterUnavailableError.
        """
        before = time_text(datetime.now(UTC) - timedelta(seconds=self._seconds))

        async def work(connection: DatabaseConnection) -> bool:
            rows = await connection.fetch(_OLD, before, MOST_SESSIONS)
            keys = [row["session_key"] for row in rows]
            done = await connection.execute(_EVENTS, keys, MOST_ROWS)
            if done == f"DELETE {MOST_ROWS}":
                return True
            await connection.execute("DELETE FROM records WHERE session_key = ANY($1)", keys)
            return len(keys) == MOST_SESSIONS

        return await self._database.transaction(work)


def pruning(old: OldRows) -> Repeating:
    """Removes them in the background. Any node may, whatever it has itself."""

    async def all_of_them() -> None:
        while await old.prune():
            pass

    def missed(why: str) -> None:
        log.debug("old sessions are removed later: %s", why)

    return Repeating(
        TaskName.OLD_ROWS, all_of_them, missed, pause=_PAUSE_SECONDS, overdue=_ROUND_SECONDS
    )
