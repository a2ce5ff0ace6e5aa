"""Copies of chains in the cluster's database, and what is removed of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.cluster.copies import MOST_EVENTS, ShippedEvent
from orchestrator.cluster.postgres import old_rows
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.cluster.postgres.old_rows import OldRows
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.shipped import PostgresShipped, chain, lives
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.record.audit.recorded_event import full_event
from paddock.audit.chain import GENESIS_HASH, Chain, canonical, chain_hash
from tests.support.cluster_store import StoreNode, claim, joined, make_schema, opened, set_lease
from tests.support.postgres import FreshDatabase

DAY = 86_400


@pytest_asyncio.fixture
async def database(postgres: FreshDatabase) -> AsyncIterator[ClusterDatabase]:
    await make_schema(postgres.dsn)
    async with opened(postgres.dsn) as found:
        yield found


@pytest_asyncio.fixture
async def node(database: ClusterDatabase) -> StoreNode:
    return await joined(database, "node-1")


def events(key: str, number: int, word: str = "") -> list[ShippedEvent]:
    """A chain of so many events, whose texts have the characters that JSON leaves as they are."""
    found, last = [], GENESIS_HASH
    for seq in range(1, number + 1):
        body = canonical({"id": seq, "seq": seq, "text": f"{word}é\u2028{seq}"})
        found.append(ShippedEvent(key, seq, body, last, chain_hash(last, body)))
        last = found[-1].hash
    return found


async def copied(database: ClusterDatabase, key: str) -> list[ShippedEvent]:
    return [each async for each in chain(database, key)]


async def test_a_copy_has_each_event_once_however_often_it_comes(
    database: ClusterDatabase, node: StoreNode
) -> None:
    shipped = PostgresShipped(database, node.lease)
    all_of = events("k", 2 * MOST_EVENTS + 1)
    for start in (0, MOST_EVENTS // 2, MOST_EVENTS, 2 * MOST_EVENTS, 0):
        await shipped.ship(all_of[start : start + MOST_EVENTS])
    assert await copied(database, "k") == all_of
    verified = Chain()
    for event in all_of:
        verified.follow(full_event(event.body, event.prev_hash, event.hash))
    assert verified.verdict().seq == len(all_of)


async def test_another_chain_does_not_overwrite_a_copy(
    database: ClusterDatabase, node: StoreNode, caplog: pytest.LogCaptureFixture
) -> None:
    shipped = PostgresShipped(database, node.lease)
    await shipped.ship(events("k", 3))
    await shipped.ship(events("k", 3))
    assert not caplog.records
    await shipped.ship(events("k", 4, word="after a restoration"))
    assert "is not the one that the cluster has" in caplog.text
    assert (await copied(database, "k"))[:3] == events("k", 3)


async def test_a_node_that_was_given_up_copies_nothing(
    database: ClusterDatabase, node: StoreNode
) -> None:
    shipped = PostgresShipped(database, node.lease)
    # A lease that has ended does not matter: the record is not wrong for that.
    await set_lease(database, "node-1", "-1 s")
    await shipped.ship(events("k", 1))
    await NodeAdmin(database).forget("node-1")
    with pytest.raises(ClusterUnavailableError, match="given this node up"):
        await shipped.ship(events("k", 2))
    assert len(await copied(database, "k")) == 1


async def test_lives_of_an_id_are_found_the_latest_first(
    database: ClusterDatabase, node: StoreNode
) -> None:
    shipped = PostgresShipped(database, node.lease)
    for key in ("k1", "k2"):
        await node.places.claim(claim("W", key=key))
        await shipped.ship(events(key, 1))
        await node.release(key)
    await database.statement(
        lambda connection: connection.execute(
            "UPDATE records SET created_at = '2025' WHERE session_key = 'k2'"
        )
    )
    assert await lives(database, "w") == ["k1", "k2"]
    assert await lives(database, "other") == []


async def test_sessions_that_ended_long_ago_are_removed_in_portions(
    database: ClusterDatabase, node: StoreNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all nodes at once; what lives, and what has just ended, stays."""
    monkeypatch.setattr(old_rows, "MOST_SESSIONS", 3)
    monkeypatch.setattr(old_rows, "MOST_ROWS", 5)
    shipped = PostgresShipped(database, node.lease)
    for number in range(8):
        await node.places.claim(claim(f"w-{number}", key=f"k{number}"))
        await shipped.ship(events(f"k{number}", 4))
        if number:
            await node.release(f"k{number}")
    await database.statement(
        lambda connection: connection.execute(
            "UPDATE records SET ended_at = '2999' WHERE session_key = 'k1'"
        )
    )

    async def prune() -> int:
        portions = 1
        while await OldRows(database, DAY).prune():
            portions += 1
        return portions

    portions = await asyncio.gather(prune(), prune())
    assert sum(portions) >= 6  # of 24 rows and 6 sessions
    left = await database.statement(
        lambda connection: connection.fetch("SELECT session_key FROM records ORDER BY 1")
    )
    assert [row["session_key"] for row in left] == ["k0", "k1"]
    rows = await database.statement(
        lambda connection: connection.fetchval("SELECT count(*) FROM shipped")
    )
    assert rows == 2 * 4
