"""The cluster in a few numbers."""

from dataclasses import dataclass

from orchestrator.cluster.postgres import schema
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.pool import ClusterDatabase


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """`schema` is the database's; nodes do not include those that were given up."""

    cluster: str
    schema: int
    nodes: int
    alive: int
    draining: int
    sessions: int
    workspaces: int
    keys: int


_COUNTS = """
SELECT count(*) AS nodes, count(*) FILTER (WHERE until > clock_timestamp()) AS alive,
    count(*) FILTER (WHERE state = 'draining') AS draining,
    (SELECT count(*) FROM places) AS sessions, (SELECT count(*) FROM workspaces) AS workspaces,
    (SELECT count(*) FROM keys) AS keys
FROM nodes WHERE state <> 'gone'
"""


async def read(database: ClusterDatabase) -> ClusterStatus:
    """Raises: ClusterUnavailableError."""

    async def work(connection: DatabaseConnection) -> ClusterStatus:
        found = await schema.state(connection)
        row = await connection.fetchrow(_COUNTS)
        assert row is not None  # noqa: S101 - it has no condition
        assert found is not None  # noqa: S101 - each connection is checked
        return ClusterStatus(found.cluster, found.version, *row.values())

    return await database.transaction(work)
