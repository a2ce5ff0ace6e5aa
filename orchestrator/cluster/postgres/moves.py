"""Places of sessions that move: offered, committed in one transaction, and settled by both sides.

The offer's row is the lock of all three. Whoever settles removes it unless it is committed, so that
a commit which the network has delayed finds none.
"""

from orchestrator.cluster import messages
from orchestrator.cluster.base import Place
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.moves import Fate, Offer
from orchestrator.cluster.postgres.connection import DatabaseConnection, Row
from orchestrator.cluster.postgres.lease import READY, Lease
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.telling import Telling
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.events import now
from orchestrator.ground.store.effect import Effect

_NOT_THERE = "the session's place has changed: it was moved, or has ended"
_NO_OFFER = "the other node does not offer to take the session any more"
_TAKE = """
UPDATE moves SET committed = true WHERE session_key = $1 AND source_key = $2 AND NOT committed
RETURNING true
"""
_OFFER = """
INSERT INTO moves (session_key, source_key, node, epoch)
SELECT $1, p.session_key, $4, $5 FROM places p
WHERE p.session_key = $2 AND p.node = $3 AND p.number = $6 RETURNING true
"""
_TARGET = """
SELECT n.state, n.until > clock_timestamp() AS alive,
    coalesce((n.report -> 'used' ->> 'sandboxes')::float8, 0)
        <= coalesce((n.report -> 'capacity' ->> 'sandboxes')::float8, 0) AS room
FROM nodes n WHERE n.name = $1 AND n.epoch = $2 FOR KEY SHARE
"""
_LOST = """
SELECT n.name IS NULL OR n.state = 'gone' FROM moves m
LEFT JOIN nodes n ON n.name = m.node AND n.epoch = m.epoch WHERE m.source_key = $1
"""
_PLACE = """
UPDATE places SET session_key = $1, node = $2, epoch = $3, number = number + 1
WHERE session_key = $4 AND node = $5 AND number = $6 RETURNING id
"""
_RECORD = """
INSERT INTO records (session_key, id, session_id, owner, node, created_at, status, level, labels,
    work_id, parent)
SELECT $1, id, session_id, owner, $2, created_at, status, level, labels, work_id, parent
FROM records WHERE session_key = $3
"""


class PostgresMoves:
    """The moves of this node's sessions."""

    def __init__(self, database: ClusterDatabase, lease: Lease, outbox: Telling) -> None:
        self._database = database
        self._lease = lease
        self._outbox = outbox

    async def offer(self, offer: Offer) -> None:
        """As `Moves.offer`."""
        # What a session with the id has left here is forgotten first.
        await self._outbox.delivered()
        self._lease.check()

        async def work(connection: DatabaseConnection) -> None:
            await self._lease.hold(connection)
            values = (offer.session_key, offer.source_key, offer.source)
            here = (self._lease.node, self._lease.epoch)
            if not await connection.fetchval(_OFFER, *values, *here, offer.number):
                raise ConflictError(_NOT_THERE)

        await self._database.transaction(work)

    async def commit(self, source_key: str, number: int, session_key: str) -> None:
        """As `Moves.commit`."""
        await self._outbox.delivered()
        self._lease.check()

        async def work(connection: DatabaseConnection) -> None:
            await self._lease.hold(connection)
            keys = (session_key, source_key)
            offer = await connection.fetchrow(
                "SELECT node, epoch FROM moves WHERE session_key = $1 AND source_key = $2", *keys
            )
            if offer is None:
                raise ConflictError(_NO_OFFER)
            node, epoch = offer["node"], offer["epoch"]
            # The node before the offer, as whoever gives the node up locks them.
            _check(node, await connection.fetchrow(_TARGET, node, epoch))
            await give_away(
                connection,
                source=(source_key, self._lease.node, number),
                target=(session_key, node, epoch),
            )

        await self._database.transaction(work)

    async def settle(self, session_key: str) -> Place | None:
        """As `Moves.settle`."""
        self._lease.check()
        node, epoch = self._lease.node, self._lease.epoch

        async def work(connection: DatabaseConnection) -> Place | None:
            await self._lease.hold(connection, expired=True)
            await connection.execute(
                "DELETE FROM moves WHERE (session_key = $1 OR source_key = $1) AND NOT committed",
                session_key,
            )
            number = await connection.fetchval(
                "SELECT number FROM places WHERE session_key = $1 AND node = $2 AND epoch = $3",
                *(session_key, node, epoch),
            )
            return None if number is None else Place(node, epoch, number)

        return await self._database.transaction(work)

    def arrived(self, session_key: str) -> Effect:
        """As `Moves.arrived`."""
        return self._outbox.telling(Kind.ARRIVED, messages.arrived(session_key))

    async def fate(self, source_key: str) -> Fate:
        """As `Moves.fate`."""

        async def work(connection: DatabaseConnection) -> Fate:
            lost = await connection.fetchval(_LOST, source_key)
            if lost is None:
                return Fate.THERE
            return Fate.LOST if lost else Fate.PENDING

        return await self._database.statement(work)


async def give_away(
    connection: DatabaseConnection, source: tuple[str, str, int], target: tuple[str, str, int]
) -> None:
    """Makes the place that of the target, whose offer is taken with it.

    `source` is the session's key, its node and the number of its place; `target` the key of the
    offer, its node and that one's epoch. Both nodes are held. Raises: ConflictError if the offer
    has ended, or the place has changed.
    """
    (source_key, source_node, number), (session_key, node, epoch) = source, target
    if not await connection.fetchval(_TAKE, session_key, source_key):
        raise ConflictError(_NO_OFFER)
    workspace = await connection.fetchval(
        _PLACE, session_key, node, epoch, source_key, source_node, number
    )
    if workspace is None:
        raise ConflictError(_NOT_THERE)
    await connection.execute(
        "UPDATE workspaces SET node = $2 WHERE id = $1 AND node = $3 AND NOT volume",
        *(workspace, node, source_node),
    )
    await connection.execute(_RECORD, session_key, node, source_key)
    await connection.execute(
        "UPDATE records SET status = 'moved', ended_at = $2 WHERE session_key = $1",
        *(source_key, now()),
    )
    # The last copy of its workspace is one of the next life, too, until there is another.
    await connection.execute(
        "UPDATE workspace_copies SET session_key = $1, taking = '-infinity' WHERE session_key = $2",
        *(session_key, source_key),
    )


def _check(name: str, target: Row | None) -> None:
    """Raises: ConflictError if the target may not take the session now."""
    if target is None or not target["alive"]:
        raise ConflictError(f"the node {name} does not renew its lease: the session stays")
    if target["state"] != READY:
        raise ConflictError(f"the node {name} takes no sessions: it is {target['state']}")
    if not target["room"]:
        raise ConflictError(f"the node {name} has no room for another sandbox: the session stays")
