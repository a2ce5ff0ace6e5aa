"""Places of sessions: claimed in one transaction, by the node that has the session."""

import json

from orchestrator.cluster import messages
from orchestrator.cluster.base import Claim, Holding, Mine, Place, Summary
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.postgres.connection import DatabaseConnection, Row
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.telling import Telling
from orchestrator.cluster.postgres.texts import plain
from orchestrator.cluster.postgres.usage import Counted, add, counted
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError
from orchestrator.ground.events import now
from orchestrator.ground.store.effect import Effect

# Everything but the usage, whose row all nodes want and which therefore comes last. A withdrawal
# waits for the lock, so that it never comes before a claim that the network has delayed.
_CLAIM = """
WITH held AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtextextended($5, 0))
), node AS (
    SELECT nodes.name FROM nodes, held WHERE name = $1 AND epoch = $2 AND holder = $3
    AND state <> 'gone' AND until > clock_timestamp() FOR KEY SHARE OF nodes
), before AS (
    SELECT bytes FROM workspaces WHERE id = $4
), place AS (
    INSERT INTO places (id, session_key, owner, node, epoch, number, recovery, sessions,
        micro_cpus, memory_bytes, workspaces, workspace_before)
    SELECT $4, $5, $6, $1, $2, 1, $7, $8, $9, $10, $11, coalesce((SELECT bytes FROM before), 0)
    FROM node ON CONFLICT DO NOTHING RETURNING number
), space AS (
    INSERT INTO workspaces AS w (id, owner, node, bytes)
    SELECT $4, $6, $1, $12::bigint FROM node WHERE $11::bigint > 0
    ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes
    WHERE w.owner = excluded.owner AND w.node = excluded.node AND NOT w.volume RETURNING bytes
), record AS (
    INSERT INTO records (session_key, id, session_id, owner, node, created_at, status, level,
        labels, work_id, parent)
    SELECT $5, $4, $13, $6, $1, $14, $15, $16, $17, $18, $19 FROM place
)
SELECT EXISTS (SELECT FROM node) AS alive, (SELECT number FROM place) AS number,
    (SELECT bytes FROM before) AS before, (SELECT bytes FROM space) AS bytes
"""
_MINE = """
SELECT p.session_key, p.number, p.sessions, p.micro_cpus, p.memory_bytes, p.workspaces,
    CASE WHEN p.workspaces > 0 THEN coalesce(w.bytes, 0) ELSE 0 END AS workspace_bytes
FROM places p LEFT JOIN workspaces w ON w.id = p.id AND w.node = p.node
WHERE p.node = $1 AND p.epoch = $2
"""


def summary_values(summary: Summary) -> tuple[str, str, str, str | None, str | None]:
    """Status, level, labels, work_id and parent as the table of records has them."""
    labels = {plain(name): plain(value) for name, value in summary.labels.items()}
    parent = None if summary.parent is None else summary.parent.lower()
    work_id = None if summary.work_id is None else plain(summary.work_id)
    return summary.status, summary.level, json.dumps(labels), work_id, parent


class PostgresPlaces:
    """The places of this node's sessions in the cluster's database."""

    def __init__(self, database: ClusterDatabase, lease: Lease, outbox: Telling) -> None:
        self._database = database
        self._lease = lease
        self._outbox = outbox

    async def claim(self, claim: Claim) -> Place:
        """As `Places.claim`."""
        await self._outbox.delivered()
        self._lease.check()
        amounts = counted(claim.amounts)

        async def work(connection: DatabaseConnection) -> Place:
            row = await connection.fetchrow(_CLAIM, *self._values(claim, amounts))
            assert row is not None  # noqa: S101 - it has no condition
            if not row["alive"]:
                await self._lease.hold(connection)
                raise ClusterUnavailableError("the lease of this node has just begun: try again")
            self._check(claim, row)
            more = amounts
            if row["before"] is not None and amounts.workspaces:
                grown = row["bytes"] - row["before"]
                more = amounts._replace(workspaces=0, workspace_bytes=grown)
            await add(connection, claim.owner, more, claim.quota)
            return Place(self._lease.node, self._lease.epoch, row["number"])

        return await self._database.transaction(work)

    def _values(self, claim: Claim, amounts: Counted) -> tuple[object, ...]:
        lease, summary = self._lease, claim.summary
        return (
            *(lease.node, lease.epoch, lease.holder),
            *(claim.session_id.lower(), claim.session_key, claim.owner, claim.recovery),
            *amounts,
            *(claim.session_id, summary.created_at, *summary_values(summary)),
        )

    def _check(self, claim: Claim, row: Row) -> None:
        """Raises: ConflictError if another session has the id, or its workspace is elsewhere."""
        if row["number"] is None:
            raise ConflictError(
                f"the id {claim.session_id!r} is a live session's in this cluster: use another id,"
                " or end that session first"
            )
        if claim.amounts.workspaces and row["bytes"] is None:
            raise ConflictError(
                f"the workspace of {claim.session_id!r} is another key's, or on another node of"
                " this cluster: use another id, or purge it there first"
            )

    async def unclaim(self, session_key: str) -> None:
        """As `Places.unclaim`; it is done when the outbox is delivered."""
        await self._outbox.tell(Kind.UNCLAIMED, messages.unclaimed(session_key))

    def changed(self, session_key: str, summary: Summary) -> Effect:
        """As `Places.changed`."""
        return self._outbox.telling(Kind.CHANGED, messages.changed(session_key, summary))

    def rehandled(self, session_key: str, handle_sha256: str) -> Effect:
        """As `Places.rehandled`."""
        return self._outbox.telling(Kind.REHANDLED, messages.rehandled(session_key, handle_sha256))

    def released(self, session_key: str, session_id: str) -> Effect:
        """As `Places.released`."""
        return self._outbox.telling(Kind.RELEASED, messages.released(session_key, now()))

    def purged(self, workspace_id: str) -> Effect:
        """As `Places.purged`."""
        return self._outbox.telling(Kind.PURGED, messages.purged(workspace_id))

    async def mine(self) -> Mine:
        """As `Places.mine`."""
        await self._outbox.delivered()
        self._lease.check()

        async def work(connection: DatabaseConnection) -> Mine:
            node, epoch = self._lease.node, self._lease.epoch
            rows = await connection.fetch(_MINE, node, epoch)
            sessions = {row["session_key"]: _holding(node, epoch, row) for row in rows}
            found = await connection.fetch("SELECT id FROM workspaces WHERE node = $1", node)
            return Mine(sessions, frozenset(row["id"] for row in found))

        return await self._database.transaction(work)


def _holding(node: str, epoch: int, row: Row) -> Holding:
    amounts = Counted(*(row[name] for name in Counted._fields))
    return Holding(Place(node, epoch, row["number"]), amounts.usage())
