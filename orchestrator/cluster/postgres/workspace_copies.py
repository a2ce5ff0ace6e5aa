"""Copies of workspaces in the cluster's database, in pieces. They count for their owners."""

import logging
from collections.abc import AsyncIterator

from orchestrator.cluster.copies import WorkspaceCopy
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.usage import Counted, add, give
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError
from orchestrator.ground.limits import KeyLimits

log = logging.getLogger(__name__)

_OURS = """
SELECT true FROM places WHERE id = $1 AND session_key = $2 AND node = $3 AND epoch = $4 FOR SHARE
"""
_BEGIN = """
INSERT INTO workspace_copies (id, session_key, owner, node, bytes, sha256, handle_sha256,
    continued)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING number
"""
_PUT = """
INSERT INTO workspace_pieces (copy, number, data)
SELECT number, $2, $3 FROM workspace_copies WHERE number = $1 FOR KEY SHARE RETURNING true
"""
# Of a session, those that were not completed, or all but one; what they had counted.
_DROP = """
WITH gone AS (
    DELETE FROM workspace_copies WHERE id = $1 AND number <> $2 AND (complete = false OR $3)
    RETURNING bytes
)
SELECT coalesce(sum(bytes), 0)::bigint FROM gone
"""


class PostgresCopies:
    """Copies of the workspaces of this node's sessions."""

    def __init__(self, database: ClusterDatabase, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    async def store(
        self, copy: WorkspaceCopy, pieces: AsyncIterator[bytes], quota: KeyLimits
    ) -> None:
        """As `WorkspaceCopies.store`; what a failure has left, the next one removes."""
        self._lease.check()
        number = await self._begin(copy, quota)
        index, size = 0, 0
        async for piece in pieces:
            await self._put(number, index, piece)
            index, size = index + 1, size + len(piece)
        if size != copy.bytes:
            raise ConflictError(f"the copy has {size} bytes, and not {copy.bytes}: try again")
        await self._complete(copy, number)

    async def _begin(self, copy: WorkspaceCopy, quota: KeyLimits) -> int:
        async def work(connection: DatabaseConnection) -> int:
            await self._check(connection, copy)
            left = await connection.fetchval(_DROP, copy.session_id.lower(), 0, False)
            await give(connection, copy.owner, Counted(workspace_bytes=-left))
            number: int = await connection.fetchval(
                _BEGIN,
                *(copy.session_id.lower(), copy.session_key, copy.owner, self._lease.node),
                *(copy.bytes, copy.sha256, copy.handle_sha256, copy.continued),
            )
            await add(connection, copy.owner, Counted(workspace_bytes=copy.bytes), quota)
            return number

        return await self._database.transaction(work)

    async def _put(self, number: int, index: int, piece: bytes) -> None:
        async def work(connection: DatabaseConnection) -> None:
            if not await connection.fetchval(_PUT, number, index, piece):
                raise ConflictError("the session has ended, or is another node's: nothing is kept")

        await self._database.statement(work)

    async def _complete(self, copy: WorkspaceCopy, number: int) -> None:
        async def work(connection: DatabaseConnection) -> None:
            await self._check(connection, copy)
            await connection.execute(
                "UPDATE workspace_copies SET complete = true WHERE number = $1", number
            )
            before = await connection.fetchval(_DROP, copy.session_id.lower(), number, True)
            await give(connection, copy.owner, Counted(workspace_bytes=-before))

        await self._database.transaction(work)

    async def _check(self, connection: DatabaseConnection, copy: WorkspaceCopy) -> None:
        """Raises: ClusterUnavailableError unless the session's place is this node's."""
        await self._lease.hold(connection)
        where = self._lease.node, self._lease.epoch
        if not await connection.fetchval(_OURS, copy.session_id.lower(), copy.session_key, *where):
            raise ClusterUnavailableError("the session's place is not this node's any more")
