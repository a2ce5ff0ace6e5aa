"""The queue of one hook's messages in a cluster: one for all nodes, in its database.

The node whose record has the event puts the message here and sends it. If that node is gone,
another one sends it. What was sent by one that was too slow, and is sent by another one now, is
settled by the latter alone. So each is delivered at least once, and those of a session in order,
also after it has moved.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from orchestrator.cluster.shared import Connection, SharedDatabase
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import executing
from orchestrator.operate.hooks.delivery_queue import QueueLook
from orchestrator.operate.hooks.delivery_rows import (
    MOST_UNDELIVERED,
    Delivery,
    DeliveryCounts,
    DeliveryStatus,
    FailedTry,
    NewDelivery,
)

# After so long, what is due is sent by any node.
OVERDUE_SECONDS = 30.0
# What other nodes have left is looked for so often.
LOOK_SECONDS = 60.0
_COLUMNS = (
    "number, id, hook_id, session_key, session_id, type, body, tries, due_at, tried_at, error,"
    " undelivered_at"
)
_COUNTS = (
    "SELECT count(*) FILTER (WHERE undelivered_at IS NULL),"
    " count(*) FILTER (WHERE undelivered_at IS NOT NULL) FROM hook_deliveries WHERE hook_id = $1"
)
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 3))"
# Nothing is added to a hook that is being removed.
_IS_THERE = "SELECT true FROM hooks WHERE id = $1 FOR KEY SHARE"
_ADD = (
    "INSERT INTO hook_deliveries (id, session_key, session_id, type, body, hook_id, node)"
    " SELECT m.id, m.key, m.session, m.type, m.body, $6::text, $7::text FROM"
    " unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])"
    " WITH ORDINALITY AS m(id, key, session, type, body, place) ORDER BY m.place"
    " ON CONFLICT (id) DO NOTHING"
)
_BEGIN_NEXT = (
    "UPDATE hook_deliveries SET due_at = $3 WHERE number IN (SELECT min(number)"
    " FROM hook_deliveries WHERE hook_id = $1 AND session_key = ANY($2) AND undelivered_at IS NULL"
    " GROUP BY session_key HAVING bool_and(due_at IS NULL))"
)
_LIMIT = "UPDATE hook_deliveries SET due_at = $2 WHERE hook_id = $1 AND due_at > $2 AND node = $3"
# Others' count as due when they are overdue.
_DUE = f"due_at + CASE WHEN node = $2 THEN 0 ELSE {OVERDUE_SECONDS} END"
_NEXT = (
    f"SELECT min({_DUE}) FROM hook_deliveries WHERE hook_id = $1 AND due_at IS NOT NULL"  # noqa: S608
    " AND session_key <> ALL($3)"
)
_CLAIM = (
    "WITH mine AS (SELECT number, tries FROM hook_deliveries WHERE hook_id = $1"  # noqa: S608
    f" AND due_at IS NOT NULL AND {_DUE} <= $4 AND session_key <> ALL($3)"
    " ORDER BY due_at, number LIMIT $5 FOR UPDATE SKIP LOCKED),"
    " begun AS (UPDATE hook_deliveries d SET tries = d.tries + 1, due_at = $6, node = $2 FROM mine"
    f" WHERE d.number = mine.number RETURNING {', '.join(f'd.{c}' for c in _COLUMNS.split(', '))})"
    " SELECT * FROM begun ORDER BY number"
)
# Only by who has begun the latest try.
_MINE = "number = $1 AND tries = $2"
_DELIVER = f"DELETE FROM hook_deliveries WHERE {_MINE} RETURNING true"  # noqa: S608
_POSTPONE = f"UPDATE hook_deliveries SET error = $3, tried_at = $4, due_at = $5 WHERE {_MINE}"  # noqa: S608
_GIVE_UP = (
    "UPDATE hook_deliveries SET error = $3, tried_at = $4, due_at = NULL, undelivered_at = $4"  # noqa: S608
    f" WHERE {_MINE} RETURNING true"
)
_FORGET = (
    "DELETE FROM hook_deliveries WHERE hook_id = $1 AND undelivered_at IS NOT NULL AND"  # noqa: S608
    " (undelivered_at < $2 OR number <= (SELECT number FROM hook_deliveries WHERE hook_id = $1 AND"
    f" undelivered_at IS NOT NULL ORDER BY number DESC OFFSET {MOST_UNDELIVERED} LIMIT 1))"
)
_AGAIN = (
    "UPDATE hook_deliveries SET undelivered_at = NULL, tries = 0, node = $4 WHERE hook_id = $1"
    " AND id = $2 AND undelivered_at >= $3 RETURNING session_key"
)
_FIND = f"SELECT {_COLUMNS} FROM hook_deliveries WHERE"  # noqa: S608
_STATUS: dict[DeliveryStatus | None, str] = {
    "waiting": "undelivered_at IS NULL AND $4 <> ''",
    "undelivered": "undelivered_at >= $4",
    None: "(undelivered_at IS NULL OR undelivered_at >= $4)",
}


class SharedQueue:
    """A `DeliveryQueue` of the node with that name, whose database has its position."""

    def __init__(self, database: SharedDatabase, own: Database, hook_id: str, node: str) -> None:
        self._database = database
        self._own = own
        self._hook_id = hook_id
        self._node = node

    async def limit_due(self, latest: float) -> DeliveryCounts:
        """As `DeliveryQueue.limit_due`, for what this node has put here."""

        async def work(connection: Connection) -> None:
            await connection.execute(_LIMIT, self._hook_id, latest, self._node)

        return await self._counted(work)

    async def enqueue(
        self, position: int, messages: Sequence[NewDelivery], now: float
    ) -> DeliveryCounts:
        """As `DeliveryQueue.enqueue`. After a kill in between, they are put here again."""
        keys = sorted({each.session_key for each in messages})
        columns = [list(column) for column in zip(*messages, strict=True)]

        async def work(connection: Connection) -> None:
            if not await connection.fetchval(_IS_THERE, self._hook_id):
                return
            for key in keys:
                await self._lock(connection, key)
            await connection.execute(_ADD, *columns, self._hook_id, self._node)
            await connection.execute(_BEGIN_NEXT, self._hook_id, keys, now)

        found = await (self._counted(work) if messages else self.counts())
        await self._own.write(
            executing(
                "UPDATE hook_positions SET position = ? WHERE hook_id = ?",
                (position, self._hook_id),
            )
        )
        return found

    async def look(self, without: Collection[str], now: float) -> QueueLook:
        """As `DeliveryQueue.look`; what other nodes have left is news, too."""

        async def work(connection: Connection) -> QueueLook:
            due_at = await connection.fetchval(_NEXT, self._hook_id, self._node, list(without))
            latest = now + LOOK_SECONDS
            soon = latest if due_at is None else min(due_at, latest)
            return QueueLook(soon, await _counts(connection, self._hook_id))

        return await self._database.transaction(work)

    async def claim(
        self, without: Collection[str], most: int, now: float, again_at: float
    ) -> list[Delivery]:
        """As `DeliveryQueue.claim`. `tries` are those before this one."""

        async def work(connection: Connection) -> list[Delivery]:
            where = (self._hook_id, self._node, list(without))
            rows = await connection.fetch(_CLAIM, *where, now, most, again_at)
            return [_delivery(row.values(), begun=1) for row in rows]

        return await self._database.transaction(work)

    async def deliver(self, delivery: Delivery, now: float) -> DeliveryCounts:
        """As `DeliveryQueue.deliver`."""

        async def work(connection: Connection) -> None:
            await self._lock(connection, delivery.session_key)
            if await connection.fetchval(_DELIVER, *_mine(delivery)):
                await self._begin_next(connection, delivery.session_key, now)

        return await self._counted(work)

    async def postpone(self, failed: FailedTry, due_at: float) -> DeliveryCounts:
        """As `DeliveryQueue.postpone`."""

        async def work(connection: Connection) -> None:
            await connection.execute(_POSTPONE, *_mine(failed.delivery), *_why(failed), due_at)

        return await self._counted(work)

    async def give_up(self, failed: FailedTry, now: float, kept_since: str) -> DeliveryCounts:
        """As `DeliveryQueue.give_up`."""
        key = failed.delivery.session_key

        async def work(connection: Connection) -> None:
            await self._lock(connection, key)
            if await connection.fetchval(_GIVE_UP, *_mine(failed.delivery), *_why(failed)):
                await self._begin_next(connection, key, now)
            await connection.execute(_FORGET, self._hook_id, kept_since)

        return await self._counted(work)

    async def try_again(
        self, delivery_id: str, now: float, kept_since: str
    ) -> tuple[Delivery, DeliveryCounts] | None:
        """As `DeliveryQueue.try_again`; this node sends it."""

        async def work(connection: Connection) -> tuple[Delivery, DeliveryCounts] | None:
            where = (self._hook_id, delivery_id)
            key = await connection.fetchval(_AGAIN, *where, kept_since, self._node)
            if key is None:
                return None
            await self._lock(connection, key)
            await self._begin_next(connection, key, now)
            row = await connection.fetchrow(f"{_FIND} hook_id = $1 AND id = $2", *where)
            assert row is not None  # noqa: S101 - it was just changed
            return _delivery(row.values()), await _counts(connection, self._hook_id)

        return await self._database.transaction(work)

    async def page(
        self, status: DeliveryStatus | None, after: int, limit: int, kept_since: str
    ) -> list[Delivery]:
        """As `DeliveryQueue.page`."""
        where = f"hook_id = $1 AND number > $2 AND {_STATUS[status]} ORDER BY number LIMIT $3"

        async def work(connection: Connection) -> list[Delivery]:
            values = (self._hook_id, after, limit, kept_since)
            return [
                _delivery(row.values())
                for row in await connection.fetch(f"{_FIND} {where}", *values)
            ]

        return await self._database.transaction(work)

    async def counts(self) -> DeliveryCounts:
        """As `DeliveryQueue.counts`."""

        async def work(connection: Connection) -> DeliveryCounts:
            return await _counts(connection, self._hook_id)

        return await self._database.transaction(work)

    async def clear(self) -> None:
        """As `DeliveryQueue.clear`: this node's position. Messages go with the hook."""
        await self._own.write(
            executing("DELETE FROM hook_positions WHERE hook_id = ?", (self._hook_id,))
        )

    async def _counted(self, work: Callable[[Connection], Awaitable[None]]) -> DeliveryCounts:
        async def counting(connection: Connection) -> DeliveryCounts:
            await work(connection)
            return await _counts(connection, self._hook_id)

        return await self._database.transaction(counting)

    async def _lock(self, connection: Connection, session_key: str) -> None:
        """Nobody else begins with the next message of that session meanwhile."""
        await connection.execute(_LOCK, f"{self._hook_id} {session_key}")

    async def _begin_next(self, connection: Connection, session_key: str, now: float) -> None:
        await connection.execute(_BEGIN_NEXT, self._hook_id, [session_key], now)


async def _counts(connection: Connection, hook_id: str) -> DeliveryCounts:
    row = await connection.fetchrow(_COUNTS, hook_id)
    assert row is not None  # noqa: S101 - counts have a row
    return DeliveryCounts(*row.values())


def _mine(delivery: Delivery) -> tuple[int, int]:
    return delivery.number, delivery.tries + 1


def _why(failed: FailedTry) -> tuple[str, str]:
    """The error as PostgreSQL can keep it, and when."""
    return failed.error.encode(errors="replace").decode().replace("\0", "?"), failed.at


def _delivery(columns: Any, begun: int = 0) -> Delivery:
    """`begun` tries are under way."""
    number, id_, hook, key, session, kind, body, tries, *times = columns
    return Delivery(number, id_, hook, key, session, kind, body, tries - begun, *times)
