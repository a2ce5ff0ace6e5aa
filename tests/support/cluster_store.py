"""Nodes of a cluster that have only their store: a lease, places, usage and an outbox in memory."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.cluster import messages
from orchestrator.cluster.base import Amounts, Claim, Message, NodeReport, Summary
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.postgres import schema
from orchestrator.cluster.postgres.delivery import PostgresDelivery
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.places import PostgresPlaces
from orchestrator.cluster.postgres.pool import Access, ClusterDatabase, administering
from orchestrator.cluster.postgres.usage import PostgresUsage
from orchestrator.ground.limits import KeyLimits, KeyUsage
from orchestrator.ground.store.effect import Effect

CLUSTER = "blue"
MIB = 1024 * 1024
AMOUNTS = KeyUsage(1, 0.5, 256 * MIB, 1, 100 * MIB)
NO_LIMITS = KeyLimits()
CREATED = "2026-01-31T12:00:00.000000Z"
ENDED = "2026-01-31T13:00:00.000000Z"


def summary(status: str = "active", created_at: str = CREATED, **members: Any) -> Summary:
    """What lists show of a session."""
    return Summary(status, "low", created_at, **members)


def claim(
    session_id: str,
    key: str = "",
    owner: str = "ann",
    amounts: KeyUsage = AMOUNTS,
    quota: KeyLimits = NO_LIMITS,
    shown: Summary | None = None,
) -> Claim:
    """A claim; the key is by default made from the id."""
    return Claim(session_id, key or f"key-{session_id}", owner, amounts, quota, shown or summary())


def report(name: str, **members: Any) -> NodeReport:
    """What a node says of itself."""
    about = {"url": f"https://{name}.test:8790", "images": ("sandbox",), "levels": ("low", "high")}
    return NodeReport(name, 0, "ready", Amounts(8, 1 << 34, 40), Amounts(1, 1 << 30, 2, 1),
                      **{**about, **members})  # fmt: skip


class MemoryOutbox:
    """Messages in memory, delivered when they are asked for."""

    def __init__(self, delivery: PostgresDelivery) -> None:
        self.messages: list[Message] = []
        self.sent = 0
        self._delivery = delivery

    def put(self, kind: str, body: Mapping[str, Any]) -> Message:
        """Adds a message."""
        self.sent += 1
        message = Message(self.sent, kind, json.loads(json.dumps(body)))
        self.messages.append(message)
        return message

    def telling(self, kind: Kind, body: Mapping[str, Any]) -> Effect:
        """An effect without a database."""

        def apply(connection: object) -> None:
            self.put(kind, body)

        return apply

    async def tell(self, kind: Kind, body: Mapping[str, Any]) -> None:
        """Adds a message."""
        self.put(kind, body)

    async def delivered(self) -> None:
        """Delivers what is left."""
        if self.messages:
            await self._delivery.deliver(self.messages)
            self.messages.clear()


@dataclass
class StoreNode:
    """A node without a control plane. `outbox` has what was not delivered yet."""

    database: ClusterDatabase
    lease: Lease
    places: PostgresPlaces
    usage: PostgresUsage
    delivery: PostgresDelivery
    outbox: MemoryOutbox

    async def sessions(self) -> set[str]:
        """The keys of its sessions, according to the cluster."""
        return set((await self.places.mine()).sessions)

    async def release(self, key: str) -> None:
        """Ends a session."""
        self.outbox.put(Kind.RELEASED, messages.released(key, ENDED))
        await self.outbox.delivered()

    async def purge(self, workspace: str) -> None:
        """Purges a workspace."""
        self.outbox.put(Kind.PURGED, messages.purged(workspace))
        await self.outbox.delivered()

    async def unclaim(self, key: str) -> None:
        """Withdraws a claim."""
        await self.places.unclaim(key)
        await self.outbox.delivered()


def made_node(
    database: ClusterDatabase, name: str, identity: str = "", **options: Any
) -> StoreNode:
    """A node that has not joined yet."""
    lease = Lease(database, name, identity or f"identity of {name}", **options)
    lease.tells(lambda: report(name))
    delivery = PostgresDelivery(database, lease)
    outbox = MemoryOutbox(delivery)
    return StoreNode(
        database,
        lease,
        PostgresPlaces(database, lease, outbox),
        PostgresUsage(database, lease, outbox),
        delivery,
        outbox,
    )


async def make_schema(dsn: str, cluster: str = CLUSTER) -> None:
    """Makes the tables."""
    async with administering(Access(cluster, dsn)) as connection:
        await schema.migrate(connection, cluster, new=True)


@asynccontextmanager
async def opened(dsn: str, seconds: float | None = None) -> AsyncIterator[ClusterDatabase]:
    """The pool of one node; `seconds` is the limit of its transactions."""
    limits = {} if seconds is None else {"seconds": seconds}
    database = ClusterDatabase(Access(CLUSTER, dsn), **limits)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def joined(
    database: ClusterDatabase,
    name: str,
    identity: str = "",
    clock: Callable[[], float] | None = None,
    *,
    lasting: bool = True,
    sent: int = 0,
) -> StoreNode:
    """A node with a lease; `lasting`: it ends long after the test, however busy the machine is.

    `sent` is the highest id that its outbox has given.
    """
    node = made_node(database, name, identity, **({} if clock is None else {"clock": clock}))
    node.outbox.sent = sent
    await node.lease.register(sent)
    node.lease.joining = False
    await node.lease.renew()
    if lasting:
        await set_lease(database, name, "1 day")
    return node


async def set_lease(database: ClusterDatabase, name: str, left: str) -> None:
    """Lets the lease of a node end after that interval, such as `1 day` or `-1 s`."""

    async def work(connection: Any) -> None:
        await connection.execute(
            "UPDATE nodes SET until = clock_timestamp() + $2::text::interval WHERE name = $1",
            *(name, left),
        )

    await database.transaction(work)


async def usage_of(database: ClusterDatabase, owner: str = "ann") -> tuple[int, ...]:
    """Sessions, millionths of cores, memory, workspaces and their bytes, as the tables say."""
    columns = "sessions, micro_cpus, memory_bytes, workspaces, workspace_bytes"

    async def read(connection: Any) -> tuple[int, ...]:
        query = f"SELECT {columns} FROM key_usage WHERE owner = $1"
        row = await connection.fetchrow(query, owner)
        return (0, 0, 0, 0, 0) if row is None else tuple(row.values())

    return await database.transaction(read)


async def counted_anew(database: ClusterDatabase, owner: str = "ann") -> tuple[int, ...]:
    """The same, counted from the places and the workspaces themselves."""

    async def read(connection: Any) -> tuple[int, ...]:
        row = await connection.fetchrow(
            "SELECT p.*, w.* FROM (SELECT coalesce(sum(sessions), 0)::bigint,"
            " coalesce(sum(micro_cpus), 0)::bigint, coalesce(sum(memory_bytes), 0)::bigint"
            " FROM places WHERE owner = $1) p,"
            " (SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM workspaces"
            " WHERE owner = $1) w",
            owner,
        )
        return tuple(row.values())

    return await database.transaction(read)
