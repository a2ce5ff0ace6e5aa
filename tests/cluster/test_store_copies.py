"""Copies of workspaces in the cluster's database, and sessions that are taken over with them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.cluster.copies import LostSession, ShippedEvent, WorkspaceCopy
from orchestrator.cluster.moves import Offer
from orchestrator.cluster.postgres.lost_sessions import PostgresLost
from orchestrator.cluster.postgres.moves import PostgresMoves
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.shipped import PostgresShipped
from orchestrator.cluster.postgres.workspace_copies import PostgresCopies
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError, RateLimitedError
from orchestrator.ground.limits import KeyLimits
from tests.support.cluster_store import (
    AMOUNTS,
    MIB,
    NO_LIMITS,
    StoreNode,
    claim,
    joined,
    make_schema,
    opened,
    set_lease,
    usage_of,
)
from tests.support.postgres import FreshDatabase

LONG_LOST = "-6 s"
JUST_LOST = "-1 s"


@pytest_asyncio.fixture
async def nodes(postgres: FreshDatabase) -> AsyncIterator[list[StoreNode]]:
    """Three nodes, each with connections of its own."""
    await make_schema(postgres.dsn)
    async with AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(opened(postgres.dsn)) for _ in range(3)]
        yield [await joined(pool, f"node-{n}") for n, pool in enumerate(pools, 1)]


@pytest.fixture
def database(nodes: list[StoreNode]) -> ClusterDatabase:
    return nodes[0].database


def copy(session_id: str = "W", size: int = 3 * MIB, sha256: str = "a") -> WorkspaceCopy:
    return WorkspaceCopy(session_id, f"key-{session_id}", "ann", size, sha256, "handle", "{}")


async def archive(size: int = 3 * MIB, fill: bytes = b"x") -> AsyncIterator[bytes]:
    for start in range(0, size, MIB):
        yield fill * min(MIB, size - start)


def copies_of(node: StoreNode) -> PostgresCopies:
    return PostgresCopies(node.database, node.lease)


def lost_of(node: StoreNode) -> PostgresLost:
    return PostgresLost(node.database, node.lease, node.outbox)


async def recoverable(node: StoreNode, session_id: str = "W") -> None:
    """A session on that node, with a copy."""
    await node.places.claim(_claim(session_id))
    await copies_of(node).store(copy(session_id), archive(), NO_LIMITS)


def _claim(session_id: str) -> Any:
    return replace(claim(session_id), recovery="snapshot")


async def counts(database: ClusterDatabase) -> tuple[int, int]:
    """The numbers of copies and of pieces."""

    async def read(connection: Any) -> tuple[int, int]:
        copies = await connection.fetchval("SELECT count(*) FROM workspace_copies")
        return copies, await connection.fetchval("SELECT count(*) FROM workspace_pieces")

    return await database.statement(read)


async def take(node: StoreNode, lost: LostSession, key: str) -> None:
    moves = PostgresMoves(node.database, node.lease, node.outbox)
    await moves.offer(Offer(key, lost.copy.session_key, lost.node, lost.place))
    await lost_of(node).take(lost, key)


async def test_the_last_complete_copy_stays_and_counts(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    node = nodes[0]
    await recoverable(node)
    await copies_of(node).store(copy(size=MIB, sha256="b"), archive(MIB), NO_LIMITS)
    assert await counts(database) == (1, 1)
    assert (await usage_of(database))[4] == AMOUNTS.workspace_bytes + MIB
    await node.release("key-W")
    assert await counts(database) == (0, 0)
    assert (await usage_of(database))[4] == AMOUNTS.workspace_bytes


async def test_a_copy_that_is_cut_leaves_the_one_before(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    node = nodes[0]
    await recoverable(node)

    async def cut() -> AsyncIterator[bytes]:
        yield b"y" * MIB
        raise OSError("the disk")

    for _ in range(3):
        with pytest.raises(OSError, match="the disk"):
            await copies_of(node).store(copy(sha256="b"), cut(), NO_LIMITS)
    # One that was cut counts until the next one, and no more of them.
    assert await counts(database) == (2, 4)
    assert (await usage_of(database))[4] == AMOUNTS.workspace_bytes + 6 * MIB
    with pytest.raises(ConflictError, match="bytes"):
        await copies_of(node).store(copy(sha256="b"), archive(MIB), NO_LIMITS)
    await set_lease(database, "node-1", LONG_LOST)
    found = await lost_of(nodes[1]).reserve()
    assert found is not None
    assert found.copy.sha256 == "a"


async def test_the_owners_quota_pays_for_a_copy(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    node = nodes[0]
    await node.places.claim(_claim("W"))
    quota = KeyLimits(max_workspace_bytes=AMOUNTS.workspace_bytes + MIB)
    with pytest.raises(RateLimitedError, match="workspace_bytes"):
        await copies_of(node).store(copy(), archive(), quota)
    assert await counts(database) == (0, 0)


async def test_only_the_node_with_the_place_stores_copies(nodes: list[StoreNode]) -> None:
    one, two, _ = nodes
    await one.places.claim(_claim("W"))
    with pytest.raises(ClusterUnavailableError, match="not this node's"):
        await copies_of(two).store(copy(), archive(), NO_LIMITS)


async def test_giving_up_a_node_gives_up_its_copies(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    await recoverable(nodes[0])
    await set_lease(database, "node-1", LONG_LOST)
    await NodeAdmin(database).forget("node-1")
    assert await counts(database) == (0, 0)
    assert await usage_of(database) == (0, 0, 0, 0, 0)
    assert await lost_of(nodes[1]).reserve() is None


async def test_a_lost_session_is_taken_by_one_row_with_its_archive(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, two, _ = nodes
    await recoverable(one)
    event = ShippedEvent("key-W", 1, "{}", "0", "h1")
    await PostgresShipped(one.database, one.lease).ship([event])
    assert await lost_of(two).reserve() is None
    for left, found in ((JUST_LOST, False), (LONG_LOST, True)):
        await set_lease(database, "node-1", left)
        lost = await lost_of(two).reserve()
        assert (lost is not None) is found
    assert lost is not None
    assert (lost.node, lost.place, lost.event, lost.hash) == ("node-1", 1, 1, "h1")
    data = b"".join([piece async for piece in lost_of(two).pieces(lost)])
    assert data == b"x" * 3 * MIB
    await take(two, lost, "new")
    assert await two.sessions() == {"new"}
    assert (await two.places.mine()).sessions["new"].place.number == 2
    # What counts for the owner is what it was.
    assert (await usage_of(database))[:2] == (1, 500_000)
    # The first node returns: nothing is its own, and nothing of it can be stored.
    await set_lease(database, "node-1", "1 day")
    assert await one.sessions() == set()
    with pytest.raises(ClusterUnavailableError):
        await copies_of(one).store(copy(), archive(), NO_LIMITS)
    await one.release("key-W")
    assert await two.sessions() == {"new"}
    # The new life can be lost, too, before it has a copy of its own.
    await set_lease(database, "node-2", LONG_LOST)
    again = await lost_of(nodes[2]).reserve()
    assert again is not None
    assert (again.node, again.place, again.copy.session_key) == ("node-2", 2, "new")


async def test_a_node_that_returns_first_keeps_its_session(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, two, _ = nodes
    await recoverable(one)
    await set_lease(database, "node-1", LONG_LOST)
    lost = await lost_of(two).reserve()
    assert lost is not None
    await one.lease.renew()
    with pytest.raises(ConflictError, match="there again"):
        await take(two, lost, "new")
    assert await one.sessions() == {"key-W"}


async def test_each_session_is_reserved_for_one_node_and_taken_once(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, *others = nodes
    for number in range(6):
        await recoverable(one, f"W{number}")
    await set_lease(database, "node-1", LONG_LOST)

    async def all_of(node: StoreNode) -> Sequence[str]:
        found = []
        while (lost := await lost_of(node).reserve()) is not None:
            await take(node, lost, f"new-{lost.copy.session_id}")
            found.append(lost.copy.session_id)
        return found

    taken = await asyncio.gather(*map(all_of, others))
    assert sorted([*taken[0], *taken[1]]) == [f"w{number}" for number in range(6)]
    held = [await node.sessions() for node in others]
    assert held[0] | held[1] == {f"new-w{number}" for number in range(6)}


async def test_a_session_without_recovery_or_copy_stays_with_its_node(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, two, _ = nodes
    await one.places.claim(claim("none"))
    await one.places.claim(_claim("uncopied"))
    await set_lease(database, "node-1", LONG_LOST)
    assert await lost_of(two).reserve() is None
