"""Copies of chains in the cluster's database."""

import logging
from collections.abc import AsyncIterator, Sequence

from orchestrator.cluster.copies import MOST_EVENTS, ShippedEvent
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.pool import ClusterDatabase

log = logging.getLogger(__name__)

_SHIP = """
WITH news AS (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[])
        AS n (session_key, seq, body, prev_hash, hash)
), added AS (
    INSERT INTO shipped (session_key, seq, node, body, prev_hash, hash)
    SELECT session_key, seq, $1, body, prev_hash, hash FROM news
    ON CONFLICT DO NOTHING RETURNING session_key, seq
)
SELECT n.session_key FROM news n JOIN shipped s USING (session_key, seq)
WHERE s.hash <> n.hash LIMIT 1
"""
_PAGE = """
SELECT session_key, seq, body, prev_hash, hash FROM shipped
WHERE session_key = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""


class PostgresShipped:
    """Stores events of this node's chains."""

    def __init__(self, database: ClusterDatabase, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    async def ship(self, events: Sequence[ShippedEvent]) -> None:
        """As `ShippedRecords.ship`."""
        self._lease.check()
        columns = [list(column) for column in zip(*events, strict=True)] or [[]] * 5

        async def work(connection: DatabaseConnection) -> str | None:
            await self._lease.hold(connection, expired=True)
            other: str | None = await connection.fetchval(_SHIP, self._lease.node, *columns)
            return other

        other = await self._database.transaction(work)
        if other is not None:
            log.error(
                "the chain of the session with key %s is not the one that the cluster has, as after"
                " the restoration of a backup: its copy stays as it is",
                other,
            )


async def lives(database: ClusterDatabase, session_id: str) -> list[str]:
    """The keys of the sessions with that id of which there are events, the latest first.

    Raises: ClusterUnavailableError.
    """

    async def work(connection: DatabaseConnection) -> list[str]:
        rows = await connection.fetch(
            "SELECT session_key FROM records r WHERE id = $1 AND EXISTS"
            " (SELECT FROM shipped s WHERE s.session_key = r.session_key)"
            " ORDER BY created_at DESC LIMIT 100",
            session_id.lower(),
        )
        return [row["session_key"] for row in rows]

    return await database.transaction(work)


async def chain(database: ClusterDatabase, session_key: str) -> AsyncIterator[ShippedEvent]:
    """The events of that chain from the first one on. Raises: ClusterUnavailableError."""
    after = 0
    while True:

        async def work(connection: DatabaseConnection, after: int = after) -> list[ShippedEvent]:
            rows = await connection.fetch(_PAGE, session_key, after, MOST_EVENTS)
            return [ShippedEvent(*row.values()) for row in rows]

        page = await database.transaction(work)
        for event in page:
            yield event
        if len(page) < MOST_EVENTS:
            return
        after = page[-1].seq
