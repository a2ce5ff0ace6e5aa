"""Bytes of keys that the cluster's database lends: the limit holds for all nodes together."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.cluster.loan import PORTIONS
from orchestrator.cluster.postgres.lender import PostgresLender
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ClusterUnavailableError, RateLimitedError
from orchestrator.ground.limits import AUDIT_BYTES, KeyLimits
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Tasks
from orchestrator.record.audit.record_room import RecordRoom
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.rules.egress.rules import Decision
from orchestrator.sandbox.egress.key_bytes import KEY_SPENT, KeyBytes
from tests.support.cluster_store import StoreNode, joined, make_schema, opened
from tests.support.postgres import FreshDatabase

LIMIT = 1 << 20
DAY = "2026-03-04"
LIMITS = KeyLimits(max_egress_bytes_per_day=LIMIT, max_audit_bytes=LIMIT)
KEYS = KeyRing({"0": Principal("ci", Role.OPERATOR, limits=LIMITS)})


@pytest_asyncio.fixture
async def database(postgres: FreshDatabase) -> AsyncIterator[ClusterDatabase]:
    await make_schema(postgres.dsn)
    async with opened(postgres.dsn, 5.0) as found:
        yield found


def lender(node: StoreNode) -> PostgresLender:
    return PostgresLender(node.database, node.lease)


async def test_nodes_at_once_are_lent_the_limit_and_no_more(
    database: ClusterDatabase, postgres: FreshDatabase
) -> None:
    nodes = [await joined(database, name) for name in ("one", "two", "three")]

    async def borrowed(node: StoreNode) -> int:
        held = 0
        while True:
            more = await lender(node).settle("ci", "bytes", 1_000, held, held + 1_000 // PORTIONS)
            if more == held:
                return held
            held = more

    lent = await asyncio.gather(*map(borrowed, nodes))
    assert sum(lent) == 1_000
    # What one gives back another one gets, even if the answer was lost and it is told again.
    for _ in range(2):
        assert await lender(nodes[0]).settle("ci", "bytes", 1_000, 3, 3) == 3
    asked = lent[1] + 10
    for _ in range(2):
        assert await lender(nodes[1]).settle("ci", "bytes", 1_000, lent[1], asked) == asked
    # Of another kind, or another key, there is as much again; what is over is forgotten.
    await lender(nodes[0]).settle("ci", "day 1", 1_000, 0, 5)
    await lender(nodes[0]).settle("ci", "day 2", 1_000, 0, 5)
    kinds = postgres.sql("SELECT kind FROM paddock.key_shares WHERE granted = 5")
    assert kinds.split() == ["day", "2"]
    assert await lender(nodes[0]).granted("ci", "day 2") == 5
    # The same name in another state directory is another borrower.
    await database.transaction(
        lambda connection: connection.execute("UPDATE nodes SET state = 'gone'")
    )
    again = await joined(database, "one", "another directory")
    assert await lender(again).granted("ci", "bytes") == 0
    with pytest.raises(ClusterUnavailableError):
        await lender(nodes[0]).settle("ci", "bytes", 1_000, 0, 10)


async def test_egress_of_a_key_is_that_of_all_nodes(
    database: ClusterDatabase, postgres: FreshDatabase
) -> None:
    counts = []
    for name in ("one", "two"):
        each = KeyBytes(KEYS, KeyLimits(), lambda: DAY)
        lending = each.borrow(lender(await joined(database, name)))
        lending.start(Tasks())
        counts.append((each, lending))
    (here, lending_here), (there, lending_there) = counts
    used = 0
    for each in (here, there) * PORTIONS:
        await each.ready("ci")
        left = each.left("ci")
        assert left is not None
        taken = min(left, LIMIT // PORTIONS)
        each.add("ci", taken)
        used += taken
    await here.ready("ci")
    assert used == LIMIT
    denied = here.decided("ci", Decision(True, "allow"))
    assert (denied.allow, denied.rule) == (False, KEY_SPENT)
    assert "on all nodes together" in str(denied.why)
    # A process that was killed is taken to have used all that it was lent.
    assert await lender(await joined(database, "one")).granted("ci", f"egress_bytes {DAY}") > 0
    await lending_here.close()
    await lending_there.close()


async def test_without_the_database_a_node_uses_what_it_holds_and_then_refuses(
    database: ClusterDatabase, postgres: FreshDatabase, tmp_path: Path
) -> None:
    own = await Database.open(tmp_path / "paddock.db")
    borrower = lender(await joined(database, "one"))
    room = RecordRoom(KEYS, KeyLimits(), 0, lambda: 1)
    lending = await room.borrow(borrower, own)
    lending.start(Tasks())
    out = KeyBytes(KEYS, KeyLimits(), lambda: DAY)
    lending_out = out.borrow(borrower)
    lending_out.start(Tasks())
    await room.ready("ci")
    await out.ready("ci")
    postgres.server.stop()
    room.check("ci")
    assert room.stops("ci") is None
    room.add("ci", LIMIT // PORTIONS)
    await room.ready("ci")
    with pytest.raises(ClusterUnavailableError) as refused:
        room.check("ci")
    assert AUDIT_BYTES in refused.value.detail
    assert room.stops("ci") is not None
    held = out.left("ci")
    assert held
    out.add("ci", held)
    await out.ready("ci")
    assert "does not answer" in str(out.decided("ci", Decision(True, "allow")).why)
    await lending.close()
    await lending_out.close()
    # The next start knows what it was lent, without the database.
    next_room = RecordRoom(KEYS, KeyLimits(), 0, lambda: 1)
    next_lending = await next_room.borrow(borrower, own)
    next_lending.restore("ci", LIMIT // PORTIONS, 5)
    next_room.check("ci")
    await own.close()


async def test_the_record_of_a_key_is_that_of_all_nodes(
    database: ClusterDatabase, tmp_path: Path
) -> None:
    own = await Database.open(tmp_path / "paddock.db")
    rooms = []
    for name in ("one", "two"):
        room = RecordRoom(KEYS, KeyLimits(), 0, lambda: 1)
        lending = await room.borrow(lender(await joined(database, name)), own)
        lending.start(Tasks())
        rooms.append((room, lending))
    (here, lending_here), (there, lending_there) = rooms
    await here.ready("ci")
    # What stops is recorded without asking, and counts.
    here.add("ci", LIMIT - 2 * (LIMIT // PORTIONS))
    await here.ready("ci")
    await there.ready("ci")
    there.check("ci")
    there.add("ci", LIMIT // PORTIONS)
    await there.ready("ci")
    with pytest.raises(RateLimitedError) as refused:
        there.check("ci")
    assert refused.value.fields["limit"] == AUDIT_BYTES
    # Archived records make room on other nodes.
    here.add("ci", -LIMIT // 2)
    await lending_here.close()
    await lending_there.close()
    await own.close()
