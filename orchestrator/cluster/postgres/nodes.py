"""What operators change about nodes: draining, and giving up one that does not come back."""

from typing import NamedTuple

from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.lease import DRAINING, GONE, READY
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.usage import Counted, give
from orchestrator.ground.errors import ConflictError, NotFoundError


class Forgotten(NamedTuple):
    """What was on a node that is given up."""

    sessions: int
    workspaces: int


_NODE = "SELECT state, until > clock_timestamp() AS alive FROM nodes WHERE name = $1 FOR UPDATE"
_COUNTS = """
SELECT (SELECT count(*) FROM places WHERE node = $1) AS sessions,
    (SELECT count(*) FROM workspaces WHERE node = $1) AS workspaces
"""
# By owner, in the order in which all transactions lock several.
_FREED = """
WITH gone AS (
    DELETE FROM places WHERE node = $1 RETURNING id, owner, sessions, micro_cpus, memory_bytes
), copied AS (
    DELETE FROM workspace_copies WHERE id IN (SELECT id FROM gone) RETURNING owner, bytes
), emptied AS (
    DELETE FROM workspaces WHERE node = $1 RETURNING owner, bytes
), freed AS (
    SELECT owner, sessions, micro_cpus, memory_bytes, 0 AS workspaces, 0 AS bytes FROM gone
    UNION ALL SELECT owner, 0, 0, 0, 1, bytes FROM emptied
    UNION ALL SELECT owner, 0, 0, 0, 0, bytes FROM copied
)
SELECT owner, -sum(sessions)::bigint, -sum(micro_cpus)::bigint, -sum(memory_bytes)::bigint,
    -sum(workspaces)::bigint, -sum(bytes)::bigint
FROM freed GROUP BY owner ORDER BY owner
"""


class NodeAdmin:
    """Changes what the cluster says of its nodes."""

    def __init__(self, database: ClusterDatabase) -> None:
        self._database = database

    async def drain(self, name: str) -> None:
        """No new sessions are put on it. Raises: NotFoundError, ClusterUnavailableError."""
        await self._set(name, DRAINING)

    async def undrain(self, name: str) -> None:
        """It takes new sessions again. Raises: NotFoundError, ClusterUnavailableError."""
        await self._set(name, READY)

    async def holds(self, name: str) -> Forgotten:
        """What is on it. Raises: NotFoundError, ClusterUnavailableError."""

        async def work(connection: DatabaseConnection) -> Forgotten:
            await _known(connection, name)
            return await _counts(connection, name)

        return await self._database.transaction(work)

    async def forget(self, name: str) -> Forgotten:
        """Gives it up: its sessions' ids, workspaces, names and usage are free from now on.

        If it returns, it ends the sessions that it still has. Raises: NotFoundError; ConflictError
        if its lease lasts; ClusterUnavailableError.
        """

        async def work(connection: DatabaseConnection) -> Forgotten:
            if await _known(connection, name):
                raise ConflictError(
                    f"the node {name!r} is alive: drain it, end its sessions, stop it, and wait"
                    " until its lease has ended, after 15 s"
                )
            counts = await _counts(connection, name)
            await connection.execute(
                "UPDATE nodes SET state = $2, until = least(until, clock_timestamp())"
                " WHERE name = $1",
                *(name, GONE),
            )
            await connection.execute(
                "UPDATE records SET ended_at = to_char(clock_timestamp() AT TIME ZONE 'UTC',"
                """ 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), status = 'terminated'"""
                " WHERE node = $1 AND ended_at IS NULL",
                name,
            )
            for row in await connection.fetch(_FREED, name):
                owner, *amounts = row.values()
                await give(connection, owner, Counted(*amounts))
            await connection.execute("DELETE FROM key_shares WHERE node = $1", name)
            await connection.execute("DELETE FROM names WHERE node = $1", name)
            # What it has offered only. What was given to it keeps the files where they were.
            await connection.execute("DELETE FROM moves WHERE node = $1 AND NOT committed", name)
            return counts

        return await self._database.transaction(work)

    async def _set(self, name: str, state: str) -> None:
        async def work(connection: DatabaseConnection) -> None:
            await _known(connection, name)
            await connection.execute("UPDATE nodes SET state = $2 WHERE name = $1", name, state)

        await self._database.transaction(work)


async def _known(connection: DatabaseConnection, name: str) -> bool:
    """Locks the node; whether it is alive. Raises: NotFoundError."""
    row = await connection.fetchrow(_NODE, name)
    if row is None or row["state"] == GONE:
        raise NotFoundError(f"the cluster has no node {name!r}: `paddock cluster nodes` lists them")
    return bool(row["alive"])


async def _counts(connection: DatabaseConnection, name: str) -> Forgotten:
    row = await connection.fetchrow(_COUNTS, name)
    assert row is not None  # noqa: S101 - it has no condition
    return Forgotten(row["sessions"], row["workspaces"])
