"""Lends bytes of keys to nodes: a row for each node, key and kind, decided under one lock."""

from orchestrator.cluster.loan import Lent, granted
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.pool import ClusterDatabase

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 2))"
_ROWS = """
SELECT coalesce(sum(greatest(granted, used)) FILTER (WHERE node <> $3), 0)::bigint AS others,
    coalesce(max(granted) FILTER (WHERE node = $3), 0)::bigint AS granted
FROM key_shares WHERE owner = $1 AND kind = $2
"""
_PUT = """
INSERT INTO key_shares (owner, kind, node, granted, used) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, node, kind) DO UPDATE SET granted = excluded.granted, used = excluded.used
"""
# What this node was lent in earlier windows.
_FORGET = "DELETE FROM key_shares WHERE owner = $1 AND kind < $2 AND node = $3 AND kind LIKE $4"


class PostgresLender:
    """A `Lender`. A borrower is a node's state directory: under its name another one may come."""

    def __init__(self, database: ClusterDatabase, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    async def granted(self, owner: str, kind: str) -> int:
        """As `Lender.granted`."""

        async def work(connection: DatabaseConnection) -> int:
            row = await connection.fetchrow(_ROWS, owner, kind, self._lease.identity)
            assert row is not None  # noqa: S101 - sums have a row
            found: int = row["granted"]
            return found

        self._lease.check()
        return await self._database.transaction(work)

    async def settle(self, owner: str, kind: str, limit: int, used: int, wanted: int) -> int:
        """As `Lender.settle`."""

        async def work(connection: DatabaseConnection) -> int:
            await self._lease.hold(connection, expired=True)
            await connection.execute(_LOCK, f"{owner} {kind}")
            mine = (owner, kind, self._lease.identity)
            row = await connection.fetchrow(_ROWS, *mine)
            assert row is not None  # noqa: S101 - sums have a row
            found = granted(limit, row["others"], Lent(row["granted"], used), wanted)
            await connection.execute(_PUT, *mine, found, used)
            if not row["granted"]:
                await connection.execute(_FORGET, *mine, _window(kind))
            return found

        self._lease.check()
        return await self._database.transaction(work)


def _window(kind: str) -> str:
    """A pattern of this kind in all windows; without windows, of nothing else."""
    name, _, window = kind.partition(" ")
    return f"{name} %" if window else kind
