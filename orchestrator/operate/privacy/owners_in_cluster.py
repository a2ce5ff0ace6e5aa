"""What the nodes of a cluster ask each other about owners: rows of its database.

Each node carries out its own part of a request, because it is the only writer of its own. Who is
away does so when it is back. One that was given up may be back, too: as long as its name is not
another machine's.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from orchestrator.cluster.outbox import Outbox
from orchestrator.cluster.shared import CHANNEL, Connection, SharedDatabase, can_be_stored
from orchestrator.ground.errors import ValidationError
from orchestrator.operate.privacy.erasure_orders import OwnerOrder, OwnerWork, refuse_live

# How long an answer waits for the parts of nodes that are alive, once this node has done its own.
WAIT_SECONDS = 120.0
_MOST_NAMED = 6
_LIVE = """
SELECT session_id || ' on ' || node AS live FROM records WHERE owner = $1 AND ended_at IS NULL
ORDER BY created_at LIMIT $2
"""
# What was done long ago, and exports that nobody waits for any more.
_CLEAR = """
DELETE FROM owner_requests r WHERE asked < clock_timestamp() - interval '1 day'
AND (kind = 'export' OR NOT EXISTS
    (SELECT FROM owner_parts WHERE request = r.number AND result IS NULL))
"""
_ASK = """
INSERT INTO owner_requests (kind, owner, asked_by, reason) VALUES ($1, $2, $3, $4) RETURNING number
"""
_PARTS = """
INSERT INTO owner_parts (request, node, identity)
SELECT $1, name, identity FROM nodes WHERE name <> $2
"""
# Of this node, while it is the machine that was meant.
_OPEN = """
FROM owner_parts p JOIN owner_requests r ON r.number = p.request
JOIN nodes n ON n.name = p.node AND n.identity = p.identity
WHERE p.node = $1 AND p.result IS NULL AND n.state <> 'gone' AND n.until > clock_timestamp()
AND (r.kind = 'erase' OR r.asked > clock_timestamp() - interval '1 hour')
"""
_ORDERS = (
    f"SELECT r.kind, r.number, r.owner, r.asked_by, r.reason {_OPEN} ORDER BY r.number LIMIT 20"
)
_HAS_ORDERS = f"SELECT EXISTS (SELECT {_OPEN})"
_SETTLE = "UPDATE owner_parts SET result = $3 WHERE request = $1 AND node = $2"
_ANSWERS = """
SELECT p.node, p.result, n.identity = p.identity AND n.state <> 'gone'
    AND n.until > clock_timestamp() AS alive
FROM owner_parts p LEFT JOIN nodes n ON n.name = p.node WHERE p.request = $1 ORDER BY p.node
"""
_TELL = f"NOTIFY {CHANNEL}"


class NodeAnswers(NamedTuple):
    """What other nodes have done, by their names, and those that have not done their part yet."""

    results: Mapping[str, dict[str, Any]]
    missing: list[str]


class OwnersInCluster:
    """Requests of this node, and its parts of others'. Methods raise ClusterUnavailableError."""

    def __init__(
        self, database: SharedDatabase, node: str, outbox: Outbox, seconds: float = WAIT_SECONDS
    ) -> None:
        """`seconds`: how long answers wait for other nodes."""
        self.node = node
        self._database = database
        self._outbox = outbox
        self._seconds = seconds
        self._waiting: set[asyncio.Event] = set()
        self._closed = False

    def close(self) -> None:
        """From now on, no answer waits for other nodes."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        for told in self._waiting:
            told.set()

    async def check(self, order: OwnerOrder) -> None:
        """Raises: ConflictError while a session of the owner lives somewhere; ValidationError."""
        if not can_be_stored(order.reason):
            raise ValidationError("reason has a character that can't be stored", field="reason")
        await self._outbox.delivered()

        async def work(connection: Connection) -> list[str]:
            rows = await connection.fetch(_LIVE, order.owner, _MOST_NAMED)
            return [row["live"] for row in rows]

        refuse_live(order.owner, await self._database.transaction(work))

    async def ask(self, order: OwnerOrder) -> int:
        """Asks all other nodes for their parts, those that are away, too; the request's number."""

        async def work(connection: Connection) -> int:
            await connection.execute(_CLEAR)
            number: int = await connection.fetchval(
                _ASK, order.kind.value, order.owner, order.asked_by, order.reason
            )
            await connection.execute(_PARTS, number, self.node)
            await connection.execute(_TELL)
            return number

        return await self._database.transaction(work)

    async def orders(self) -> list[OwnerOrder]:
        """What others have asked for that this node has not done yet, the oldest first."""

        async def work(connection: Connection) -> list[OwnerOrder]:
            rows = await connection.fetch(_ORDERS, self.node)
            found = (row.values() for row in rows)
            return [OwnerOrder(OwnerWork(kind), *others) for kind, *others in found]

        return await self._database.transaction(work)

    async def settle(self, number: int, result: Mapping[str, Any]) -> None:
        """Says that this node has done its part."""

        async def work(connection: Connection) -> None:
            await connection.execute(_SETTLE, number, self.node, json.dumps(result))
            await connection.execute(_TELL)

        await self._database.transaction(work)

    async def withdraw(self, number: int) -> None:
        """Nobody waits for what has not been done of it."""
        statement = "DELETE FROM owner_parts WHERE request = $1 AND result IS NULL"
        await self._database.transaction(lambda each: each.execute(statement, number))

    async def answers(self, number: int) -> NodeAnswers:
        """What all nodes that are alive have done. The others are missing, and what takes long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        told = asyncio.Event()
        self._waiting.add(told)
        try:
            while True:
                told.clear()
                rows = await self._database.transaction(lambda each: each.fetch(_ANSWERS, number))
                open_parts = [row for row in rows if row["result"] is None]
                waits = any(row["alive"] for row in open_parts) and not self._closed
                if not waits or loop.time() >= end:
                    results = {
                        row["node"]: json.loads(row["result"])
                        for row in rows
                        if row["result"] is not None
                    }
                    return NodeAnswers(results, [row["node"] for row in open_parts])
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(end):
                        await told.wait()
        finally:
            self._waiting.discard(told)

    async def has_orders(self, connection: Connection) -> bool:
        """Whether there is a part for this node; wakes who waits for others, too."""
        self._wake()
        return bool(await connection.fetchval(_HAS_ORDERS, self.node))

    async def delivered(self) -> None:
        """Waits until the cluster has been told of all that was committed here."""
        await self._outbox.delivered()
