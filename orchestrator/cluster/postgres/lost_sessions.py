"""Sessions of lost nodes in the cluster's database: reserved, read, and taken by one row.

A node is lost 5 s after its lease has ended by this database's clock, which is at least 8 s after
it has frozen these sessions by its own. Taking holds the row of the lost node, so that no renewal
comes in between.
"""

from collections.abc import AsyncIterator

from orchestrator.cluster.copies import LostSession, WorkspaceCopy
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.lease import LOST_SECONDS, Lease
from orchestrator.cluster.postgres.moves import give_away
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.telling import Telling
from orchestrator.ground.errors import ConflictError
from paddock.audit.chain import GENESIS_HASH

# How long others leave a session to the node that tries to take it over.
_RESERVED_SECONDS = 120
_GONE = "the session has ended, or another node has it"
_LOST = f"until + interval '{LOST_SECONDS} seconds' < clock_timestamp()"
_RESERVE = f"""
WITH found AS (
    SELECT c.number, p.node, p.number AS place FROM workspace_copies c
    JOIN places p ON p.id = c.id AND p.session_key = c.session_key
    JOIN nodes n ON n.name = p.node AND n.epoch = p.epoch
    WHERE c.complete AND c.taking < clock_timestamp() AND p.recovery = 'snapshot'
        AND p.node <> $1 AND n.{_LOST}
    ORDER BY c.number LIMIT 1 FOR UPDATE OF c SKIP LOCKED
)
UPDATE workspace_copies c
SET taker = $1, taking = clock_timestamp() + interval '{_RESERVED_SECONDS} seconds'
FROM found WHERE c.number = found.number
RETURNING c.*, found.node AS lost_node, found.place,
    (SELECT max(s.seq) FROM shipped s WHERE s.session_key = c.session_key) AS event
"""  # noqa: S608 - ours
_SOURCE = f"SELECT {_LOST} FROM nodes WHERE name = $1 FOR SHARE"  # noqa: S608 - ours


class PostgresLost:
    """Sessions that this node may take over."""

    def __init__(self, database: ClusterDatabase, lease: Lease, outbox: Telling) -> None:
        self._database = database
        self._lease = lease
        self._outbox = outbox

    async def reserve(self) -> LostSession | None:
        """As `LostSessions.reserve`."""
        self._lease.check()

        async def work(connection: DatabaseConnection) -> LostSession | None:
            await self._lease.hold(connection)
            row = await connection.fetchrow(_RESERVE, self._lease.node)
            if row is None:
                return None
            digest = await connection.fetchval(
                "SELECT hash FROM shipped WHERE session_key = $1 AND seq = $2",
                *(row["session_key"], row["event"]),
            )
            copy = WorkspaceCopy(
                *(row["id"], row["session_key"], row["owner"], row["bytes"], row["sha256"]),
                *(row["handle_sha256"], row["continued"]),
            )
            where = row["number"], row["lost_node"], row["place"]
            return LostSession(copy, *where, row["event"] or 0, digest or GENESIS_HASH)

        return await self._database.transaction(work)

    async def pieces(self, lost: LostSession) -> AsyncIterator[bytes]:
        """As `LostSessions.pieces`."""
        index, size = 0, 0
        while size < lost.copy.bytes:

            async def work(connection: DatabaseConnection, index: int = index) -> bytes | None:
                found: bytes | None = await connection.fetchval(
                    "SELECT data FROM workspace_pieces WHERE copy = $1 AND number = $2",
                    *(lost.number, index),
                )
                return found

            piece = await self._database.statement(work)
            if not piece:
                raise ConflictError(_GONE)
            yield piece
            index, size = index + 1, size + len(piece)

    async def take(self, lost: LostSession, session_key: str) -> None:
        """As `LostSessions.take`."""
        await self._outbox.delivered()
        self._lease.check()

        async def work(connection: DatabaseConnection) -> None:
            # In the order of the names, as others that hold two nodes.
            for name in sorted((lost.node, self._lease.node)):
                if name == self._lease.node:
                    await self._lease.hold(connection)
                elif not await connection.fetchval(_SOURCE, name):
                    raise ConflictError(f"the node {name} is there again: the session is its own")
            await give_away(
                connection,
                source=(lost.copy.session_key, lost.node, lost.place),
                target=(session_key, self._lease.node, self._lease.epoch),
            )

        await self._database.transaction(work)
