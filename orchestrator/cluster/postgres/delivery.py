"""Applies the messages of a node's outbox: in order, each once however often it comes.

The last applied one is stored in the same transaction. What they free is taken from the usage of
the keys at the end, in the order of the names, so that two nodes never wait for each other.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestrator.cluster.base import Message
from orchestrator.cluster.messages import Kind, read_summary
from orchestrator.cluster.postgres.connection import DatabaseConnection, Row
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.names import free
from orchestrator.cluster.postgres.places import summary_values
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.usage import Counted, counted, give
from orchestrator.ground.limits import KeyUsage

log = logging.getLogger(__name__)

Body = Mapping[str, Any]
# Returns owner, sessions, cores, memory, workspaces and bytes of what it has freed, if anything.
Application = Callable[[DatabaseConnection, str, Body], Awaitable[Row | None]]


class PostgresDelivery:
    """Takes messages of this node to the cluster's database."""

    def __init__(self, database: ClusterDatabase, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    async def deliver(self, messages: Sequence[Message]) -> None:
        """As `MessageDelivery.deliver`."""
        self._lease.check()

        async def work(connection: DatabaseConnection) -> None:
            await self._lease.hold(connection, expired=True)
            where = (self._lease.node, self._lease.epoch)
            applied = await connection.fetchval(
                "SELECT applied FROM outboxes WHERE node = $1 AND epoch = $2 FOR UPDATE", *where
            )
            news = [each for each in messages if each.id > applied]
            if not news:
                return
            await self._apply(connection, news)
            await connection.execute(
                "UPDATE outboxes SET applied = $3 WHERE node = $1 AND epoch = $2",
                *(*where, news[-1].id),
            )

        await self._database.transaction(work)

    async def _apply(self, connection: DatabaseConnection, news: Sequence[Message]) -> None:
        freed: dict[str, Counted] = {}
        for message in news:
            apply = _APPLICATIONS.get(message.kind)
            if apply is None:
                log.error("the cluster is not told of an unknown %r: it is left out", message.kind)
                continue
            row = await apply(connection, self._lease.node, message.body)
            if row is not None:
                owner, *amounts = row.values()
                freed[owner] = freed.get(owner, Counted()).plus(Counted(*amounts))
        for owner in sorted(freed):
            await give(connection, owner, freed[owner])


async def _changed(connection: DatabaseConnection, node: str, body: Body) -> None:
    await connection.execute(
        "UPDATE records SET status = $3, level = $4, labels = $5, work_id = $6, parent = $7"
        " WHERE session_key = $1 AND node = $2",
        *(body["session_key"], node, *summary_values(read_summary(body["summary"]))),
    )


async def _rehandled(connection: DatabaseConnection, node: str, body: Body) -> None:
    await connection.execute(
        "UPDATE workspace_copies SET handle_sha256 = $3 WHERE session_key = $1 AND EXISTS"
        " (SELECT FROM places WHERE session_key = $1 AND node = $2)",
        *(body["session_key"], node, body["handle_sha256"]),
    )


# With the copies of its workspace, which nobody takes over any more.
_RELEASE = """
WITH ended AS (
    UPDATE records SET ended_at = coalesce(ended_at, $3) WHERE session_key = $1 AND node = $2
), place AS (
    DELETE FROM places WHERE session_key = $1 AND node = $2
    RETURNING id, owner, sessions, micro_cpus, memory_bytes
), copies AS (
    DELETE FROM workspace_copies WHERE id = (SELECT id FROM place) RETURNING bytes
)
SELECT owner, -sessions, -micro_cpus, -memory_bytes, 0,
    -coalesce((SELECT sum(bytes) FROM copies), 0)::bigint
FROM place
"""


async def _released(connection: DatabaseConnection, node: str, body: Body) -> Row | None:
    return await connection.fetchrow(_RELEASE, body["session_key"], node, body["ended_at"])


async def _purged(connection: DatabaseConnection, node: str, body: Body) -> Row | None:
    return await connection.fetchrow(
        "DELETE FROM workspaces WHERE id = $1 AND node = $2 RETURNING owner, 0, 0, 0, -1, -bytes",
        *(body["workspace_id"].lower(), node),
    )


_UNCLAIM = """
WITH record AS (
    DELETE FROM records WHERE session_key = $1 AND node = $2
), place AS (
    DELETE FROM places WHERE session_key = $1 AND node = $2
    RETURNING id, owner, sessions, micro_cpus, memory_bytes, workspaces, workspace_before
), mine AS (
    SELECT * FROM place WHERE workspaces > 0
), emptied AS (
    DELETE FROM workspaces w USING mine m
    WHERE w.id = m.id AND w.node = $2 AND m.workspace_before = 0 RETURNING w.bytes
), narrowed AS (
    UPDATE workspaces w SET bytes = m.workspace_before FROM mine m, workspaces o
    WHERE w.id = m.id AND o.id = m.id AND w.node = $2 AND m.workspace_before > 0
    RETURNING o.bytes - m.workspace_before AS bytes
)
SELECT owner, -sessions, -micro_cpus, -memory_bytes,
    -(SELECT count(*) FROM emptied),
    -coalesce((SELECT bytes FROM emptied), (SELECT bytes FROM narrowed), 0)
FROM place
"""


async def _unclaimed(connection: DatabaseConnection, node: str, body: Body) -> Row | None:
    # The claim may still be under way, when its node did not hear of its end.
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", body["session_key"]
    )
    return await connection.fetchrow(_UNCLAIM, body["session_key"], node)


_SETTLE = """
WITH place AS (
    SELECT id, owner, micro_cpus, memory_bytes, workspaces FROM places
    WHERE session_key = $1 AND node = $2 FOR UPDATE
), space AS (
    SELECT bytes FROM workspaces WHERE id = (SELECT id FROM place WHERE workspaces > 0) FOR UPDATE
), settled AS (
    UPDATE places SET micro_cpus = $3::bigint, memory_bytes = $4::bigint WHERE session_key = $1
    AND node = $2
), resized AS (
    UPDATE workspaces SET bytes = $5::bigint WHERE id = (SELECT id FROM place WHERE workspaces > 0)
    AND $5::bigint > 0
)
SELECT owner, 0, $3::bigint - micro_cpus, $4::bigint - memory_bytes, 0,
    CASE WHEN $5::bigint > 0 THEN coalesce($5::bigint - (SELECT bytes FROM space), 0) ELSE 0 END
FROM place
"""


async def _settled(connection: DatabaseConnection, node: str, body: Body) -> Row | None:
    amounts = counted(KeyUsage(**body["amounts"]))
    return await connection.fetchrow(
        _SETTLE,
        *(body["session_key"], node),
        *(amounts.micro_cpus, amounts.memory_bytes, amounts.workspace_bytes),
    )


async def _arrived(connection: DatabaseConnection, node: str, body: Body) -> None:
    await connection.execute(
        "DELETE FROM moves WHERE session_key = $1 AND node = $2", body["session_key"], node
    )


async def _freed(connection: DatabaseConnection, node: str, body: Body) -> None:
    await free(connection, node, body["id"])


async def _user_end(connection: DatabaseConnection, node: str, body: Body) -> None:
    await connection.execute(
        "INSERT INTO user_ends (name, what, moment, version) VALUES ($1, $2, $3, 0)"
        " ON CONFLICT (name, what) DO UPDATE SET moment = excluded.moment"
        " WHERE excluded.moment > user_ends.moment",
        *(body["name"], body["what"], datetime.fromisoformat(body["moment"])),
    )


_APPLICATIONS: Mapping[str, Application] = {
    Kind.CHANGED: _changed,
    Kind.REHANDLED: _rehandled,
    Kind.RELEASED: _released,
    Kind.UNCLAIMED: _unclaimed,
    Kind.PURGED: _purged,
    Kind.SETTLED: _settled,
    Kind.ARRIVED: _arrived,
    Kind.FREED: _freed,
    Kind.USER_END: _user_end,
}
