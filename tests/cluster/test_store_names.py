"""Names of volumes and snapshots in the cluster's database: each is one thing on one node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.cluster import messages
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.names import NamedKind, TakenName
from orchestrator.cluster.postgres.names import PostgresNames
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError
from tests.support.cluster_store import StoreNode, joined, make_schema, opened, set_lease
from tests.support.postgres import FreshDatabase
from tests.support.until import pause

DATA = TakenName(NamedKind.VOLUME, "ann", "data", "vol-1")
OTHER = replace(DATA, id="vol-2")


@pytest_asyncio.fixture
async def nodes(postgres: FreshDatabase) -> AsyncIterator[list[StoreNode]]:
    """Two nodes, each with connections of its own."""
    await make_schema(postgres.dsn)
    async with AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(opened(postgres.dsn)) for _ in range(2)]
        yield [await joined(pool, f"node-{n}") for n, pool in enumerate(pools, 1)]


def names(node: StoreNode) -> PostgresNames:
    return PostgresNames(node.database, node.lease, node.outbox)


async def free(node: StoreNode, thing_id: str) -> None:
    node.outbox.put(Kind.FREED, messages.freed(thing_id))
    await node.outbox.delivered()


async def test_of_many_that_take_a_name_at_once_one_has_it(nodes: list[StoreNode]) -> None:
    asked = [
        names(node).take(replace(DATA, id=f"vol-{number}-{node.lease.node}"))
        for number in range(16)
        for node in nodes
    ]
    results = await asyncio.gather(*asked, return_exceptions=True)
    refused = [each for each in results if each is not None]
    assert len(refused) == len(asked) - 1
    (holder,) = [node for node in nodes if await names(node).mine()]
    for error in refused:
        assert isinstance(error, ConflictError), error
        assert error.fields["field"] == "name"
        assert f"there is volume data already, on the node {holder.lease.node}" in error.detail


async def test_other_keys_and_kinds_have_names_of_their_own(nodes: list[StoreNode]) -> None:
    one, two = map(names, nodes)
    await one.take(DATA)
    await two.take(replace(OTHER, owner="bob"))
    await two.take(replace(DATA, kind=NamedKind.SNAPSHOT, id="snap-1"))
    # What a node makes for itself, each has.
    for each in (one, two):
        await each.take(replace(DATA, owner="system:templates", id="snap-2"))
    assert await one.mine() == {"vol-1"}
    assert await two.mine() == {"vol-2", "snap-1"}


async def test_a_name_is_free_once_its_thing_is_gone(nodes: list[StoreNode]) -> None:
    one, two = map(names, nodes)
    await one.take(DATA)
    await one.take(DATA)  # as after an answer that was lost
    await free(nodes[0], "vol-2")  # never taken
    await free(nodes[1], "vol-1")  # not its own
    with pytest.raises(ConflictError):
        await two.take(OTHER)
    # Before anything is asked, what has ended here is told.
    nodes[0].outbox.put(Kind.FREED, messages.freed("vol-1"))
    await one.take(replace(DATA, id="vol-3"))
    await free(nodes[0], "vol-3")
    await two.take(OTHER)


async def test_a_freeing_never_comes_before_its_taking(nodes: list[StoreNode]) -> None:
    """The node gave up waiting for the taking, whose commit is still under way."""
    node, other = nodes
    held, go = asyncio.Event(), asyncio.Event()

    class Slow:
        """The node's database, whose commits wait."""

        async def transaction(self, work: Any) -> Any:
            async def slow(connection: Any) -> Any:
                await work(connection)
                held.set()
                await go.wait()

            return await node.database.transaction(slow)

    slow = PostgresNames(Slow(), node.lease, node.outbox)  # type: ignore[arg-type]
    taking = asyncio.create_task(slow.take(DATA))
    await held.wait()
    freeing = asyncio.create_task(free(node, "vol-1"))
    turn = 0
    while not await _waiting(other):
        turn += 1
        await pause(turn)
    go.set()
    await asyncio.gather(taking, freeing)
    assert not await names(node).mine()


async def _waiting(node: StoreNode) -> Any:
    async def work(connection: Any) -> Any:
        return await connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
        )

    return await node.database.transaction(work)


async def test_a_node_that_is_given_up_has_no_names(nodes: list[StoreNode]) -> None:
    lost, other = nodes
    await names(lost).take(DATA)
    await set_lease(lost.database, "node-1", "-1 s")
    with pytest.raises(ClusterUnavailableError, match="the lease of this node has ended"):
        await names(lost).take(replace(DATA, name="more", id="vol-4"))
    # Its machine may come back with the volume, until somebody says that it does not.
    with pytest.raises(ConflictError, match="on the node node-1"):
        await names(other).take(OTHER)
    await NodeAdmin(other.database).forget("node-1")
    await names(other).take(OTHER)
    with pytest.raises(ClusterUnavailableError):
        await names(lost).take(replace(DATA, name="more", id="vol-4"))
    await lost.lease.register()
    await lost.lease.renew()
    await free(lost, "vol-2")
    assert not await names(lost).mine()
    assert await names(other).mine() == {"vol-2"}
