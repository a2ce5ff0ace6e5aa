"""Names of volumes and snapshots in the cluster's database: each taken in one transaction."""

from orchestrator.cluster import messages
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.names import TakenName
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.telling import Telling
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.store.effect import Effect

# Of the same name at the same moment, the second one waits here for the commit of the first.
_TAKE = """
INSERT INTO names (id, kind, owner, name, node) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING true
"""
_HOLDER = "SELECT id, node FROM names WHERE kind = $1 AND owner = $2 AND name = $3"
# Who frees a name waits for it, so that this never comes before a taking that is under way.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"


class PostgresNames:
    """The names of what is on this node."""

    def __init__(self, database: ClusterDatabase, lease: Lease, outbox: Telling) -> None:
        self._database = database
        self._lease = lease
        self._outbox = outbox

    async def take(self, name: TakenName) -> None:
        """As `NameClaims.take`."""
        if not name.is_of_key:
            return
        await self._outbox.delivered()
        self._lease.check()
        asked = (name.kind, name.owner, name.name)

        async def work(connection: DatabaseConnection) -> None:
            await connection.execute(_LOCK, name.id)
            await self._lease.hold(connection)
            if await connection.fetchval(_TAKE, name.id, *asked, self._lease.node):
                return
            row = await connection.fetchrow(_HOLDER, *asked)
            if row is None or row["id"] != name.id:
                where = "" if row is None else f", on the node {row['node']}"
                raise ConflictError(
                    f"there is {name.kind} {name.name} already{where}: remove it, or choose"
                    " another name",
                    field="name",
                )

        await self._database.transaction(work)

    def freed(self, thing_id: str) -> Effect:
        """As `NameClaims.freed`."""
        return self._outbox.telling(Kind.FREED, messages.freed(thing_id))

    async def mine(self) -> frozenset[str]:
        """As `NameClaims.mine`."""
        await self._outbox.delivered()

        async def work(connection: DatabaseConnection) -> frozenset[str]:
            rows = await connection.fetch("SELECT id FROM names WHERE node = $1", self._lease.node)
            return frozenset(row["id"] for row in rows)

        return await self._database.statement(work)


async def free(connection: DatabaseConnection, node: str, thing_id: str) -> None:
    """Frees a name of that node, if it has it."""
    await connection.execute(_LOCK, thing_id)
    await connection.execute("DELETE FROM names WHERE id = $1 AND node = $2", thing_id, node)
