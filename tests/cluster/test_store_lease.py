"""Leases: by the database's clock, believed by the node's own, given up by the cluster only."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.cluster.base import NodeReport
from orchestrator.cluster.postgres import membership
from orchestrator.cluster.postgres.directory import PostgresDirectory
from orchestrator.cluster.postgres.lease import LEASE_SECONDS, GivenUpError
from orchestrator.cluster.postgres.membership import PostgresMembership
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError, NotFoundError
from orchestrator.ground.tasks import Tasks
from tests.support.cluster_store import (
    StoreNode,
    claim,
    counted_anew,
    joined,
    made_node,
    make_schema,
    opened,
    report,
    set_lease,
    usage_of,
)
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import FreshDatabase
from tests.support.until import until

HOUR = 3600.0


@pytest_asyncio.fixture
async def database(postgres: FreshDatabase) -> AsyncIterator[ClusterDatabase]:
    await make_schema(postgres.dsn)
    async with opened(postgres.dsn) as found:
        yield found


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_node_believes_in_its_lease_from_the_sending_on(
    database: ClusterDatabase,
) -> None:
    clock = Clock()
    node = await joined(database, "node-1", clock=clock)
    assert node.lease.seconds_left == LEASE_SECONDS
    clock.now += LEASE_SECONDS - 1

    class Slow:
        """The database, whose answer takes 4 s."""

        async def statement(self, work: Any) -> Any:
            result = await database.statement(work)
            clock.now += 4
            return result

    node.lease._database = Slow()  # type: ignore[assignment]
    await node.lease.renew()
    assert node.lease.seconds_left == LEASE_SECONDS - 4
    clock.now += LEASE_SECONDS - 4
    assert not node.lease.alive


async def test_the_time_of_day_of_a_node_does_not_matter(
    database: ClusterDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock is an hour ahead, then an hour behind; the lease is as long as always."""
    real = time.time
    left = []
    for offset in (0.0, HOUR, -HOUR):
        monkeypatch.setattr(time, "time", lambda offset=offset: real() + offset)
        node = await joined(database, f"node{offset:.0f}", lasting=False)

        async def read(connection: object, name: str = node.lease.node) -> float:
            found: float = await connection.fetchval(  # type: ignore[attr-defined]
                "SELECT extract(epoch FROM until - renewed)::float8 FROM nodes WHERE name = $1",
                name,
            )
            return found

        left.append(round(await database.transaction(read), 3))
        assert 0 < node.lease.seconds_left <= LEASE_SECONDS
    assert left == [LEASE_SECONDS] * 3
    known = await PostgresDirectory(database).nodes()
    assert all(0 <= each.silent_seconds < WAIT_SECONDS for each in known)


async def test_a_name_belongs_to_one_state_directory(database: ClusterDatabase) -> None:
    await joined(database, "node-1", "first")
    other = made_node(database, "node-1", "second")
    with pytest.raises(ConfigError, match="PADDOCK_NODE: the node 'node-1' is alive"):
        await other.lease.register()
    await set_lease(database, "node-1", "-1 s")
    with pytest.raises(ConfigError, match="paddock cluster forget node-1"):
        await other.lease.register()
    assert not other.lease.alive
    with pytest.raises(ClusterUnavailableError, match="has not joined"):
        await other.places.claim(claim("a"))


async def test_new_nodes_at_once_do_not_share_a_name(database: ClusterDatabase) -> None:
    nodes = [made_node(database, "node-1", f"directory {number}") for number in range(6)]
    taken = await asyncio.gather(*(node.lease.register() for node in nodes), return_exceptions=True)
    assert sum(each is None for each in taken) == 1
    assert all(each is None or isinstance(each, ConfigError) for each in taken)


async def test_a_restart_goes_on_and_the_process_before_it_works_no_more(
    database: ClusterDatabase,
) -> None:
    before = await joined(database, "node-1", "same")
    await before.places.claim(claim("a"))
    after = await joined(database, "node-1", "same")
    assert (after.lease.epoch, await after.sessions()) == (1, {"key-a"})
    with pytest.raises(GivenUpError, match="another process works under the name") as caught:
        await before.lease.renew()
    assert not caught.value.forgotten
    for refused in (before.places.claim(claim("b")), before.delivery.deliver(())):
        with pytest.raises(ClusterUnavailableError, match="another process"):
            await refused
    assert not before.lease.alive
    # It does not even have to renew before it is refused.
    third = await joined(database, "node-1", "same")
    with pytest.raises(GivenUpError):
        await after.places.claim(claim("c"))
    await third.places.claim(claim("c"))


async def test_a_node_whose_lease_has_ended_takes_no_place_until_it_renews(
    database: ClusterDatabase,
) -> None:
    node = await joined(database, "node-1")
    await node.places.claim(claim("a"))
    await set_lease(database, "node-1", "-1 s")
    with pytest.raises(ClusterUnavailableError, match="the lease of this node has ended"):
        await node.places.claim(claim("b"))
    # What ends is told all the same.
    await node.release("key-a")
    await node.lease.renew()
    await node.places.claim(claim("b"))


async def test_giving_up_a_node_frees_everything_and_its_epoch_is_over(
    database: ClusterDatabase,
) -> None:
    lost, other = await joined(database, "lost"), await joined(database, "other")
    admin = NodeAdmin(database)
    for number in range(3):
        await lost.places.claim(claim(f"s{number}", owner="bob" if number else "ann"))
    await lost.usage.add_volume("ann", "v", 5, claim("x").quota)
    await lost.release("key-s2")
    with pytest.raises(ConflictError, match="is alive: drain it"):
        await admin.forget("lost")
    await set_lease(database, "lost", "-1 s")
    assert await admin.holds("lost") == (2, 4)
    assert await admin.forget("lost") == (2, 4)
    for owner in ("ann", "bob"):
        assert await usage_of(database, owner) == await counted_anew(database, owner) == (0,) * 5
    for _ in range(2):
        with pytest.raises(NotFoundError, match="no node 'lost'"):
            await admin.forget("lost")
    await other.places.claim(claim("S0"))
    # It comes back and knows nothing yet.
    for refused in (
        lost.places.claim(claim("s1")),
        lost.release("key-s0"),
        lost.usage.add_volume("ann", "w", 5, claim("x").quota),
        lost.lease.renew(),
    ):
        with pytest.raises(GivenUpError, match="has given this node up") as caught:
            await refused
        assert caught.value.forgotten
    lost.outbox.messages.clear()
    await lost.lease.register()
    await lost.lease.renew()
    assert (lost.lease.epoch, await lost.sessions()) == (2, set())
    # What it still had to tell of its former sessions does not reach the present ones.
    await lost.release("key-s0")
    await lost.purge("s0")
    assert await other.sessions() == {"key-S0"}
    assert await usage_of(database) == await counted_anew(database)


async def test_a_forgotten_name_may_be_another_machines(database: ClusterDatabase) -> None:
    await joined(database, "node-1", "first")
    await set_lease(database, "node-1", "-1 s")
    await NodeAdmin(database).forget("node-1")
    replaced = await joined(database, "node-1", "second")
    assert replaced.lease.epoch == 2


async def test_a_claim_and_the_end_of_its_node_are_one_after_the_other(
    database: ClusterDatabase,
) -> None:
    """However they meet: what was claimed is freed with its node, or was refused."""
    for number in range(8):
        node = await joined(database, f"node-{number}")
        claims = [node.places.claim(claim(f"r{number}-{each}")) for each in range(6)]

        async def end(name: str = node.lease.node) -> None:
            await set_lease(database, name, "-1 s")
            await NodeAdmin(database).forget(name)

        await asyncio.gather(*claims, end(), return_exceptions=True)
        assert await usage_of(database) == await counted_anew(database) == (0,) * 5


async def test_drained_nodes_know_it_and_go_on(database: ClusterDatabase) -> None:
    node = await joined(database, "node-1")
    admin = NodeAdmin(database)
    directory = PostgresDirectory(database)
    await admin.drain("node-1")
    await node.lease.renew()
    assert node.lease.state == "draining"
    (known,) = await directory.nodes()
    assert (known.alive, known.takes_sessions, known.report.state) == (True, False, "draining")
    # A session's child is on the node of its parent.
    await node.places.claim(claim("child"))
    restarted = await joined(database, "node-1")
    assert restarted.lease.state == "draining"
    await admin.undrain("node-1")
    (known,) = await directory.nodes()
    assert known.takes_sessions
    with pytest.raises(NotFoundError):
        await admin.drain("node-2")


async def test_ids_of_a_restored_backup_count_again(database: ClusterDatabase) -> None:
    node = await joined(database, "node-1")
    for name in ("a", "b", "c"):
        await node.places.claim(claim(name))
    await node.release("key-a")
    await node.release("key-b")
    restored = made_node(database, "node-1")
    restored.outbox.sent = 1
    await restored.lease.register(sent=1)
    await restored.lease.renew()
    await restored.release("key-c")
    assert await restored.sessions() == set()


class Capacity:
    """Reports of a node, whose use grows."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.told = asyncio.Event()

    def report(self) -> NodeReport:
        """The report."""
        self.told.set()
        return report(self._name, labels={"zone": "a"}, used_by={"ann": 2})


async def test_a_member_joins_renews_and_joins_again(
    database: ClusterDatabase, postgres: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "RENEWAL_SECONDS", 0.05)
    node = made_node(database, "node-1")
    compared: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()
    directory = PostgresDirectory(database)

    async def compare() -> None:
        (known,) = await directory.nodes()
        mine = await node.places.mine()
        # What has no place takes one: the lease lasts, and is renewed.
        epoch = node.lease.epoch
        assert f"key-old-{epoch}" not in mine.sessions
        await node.places.claim(claim(f"old-{epoch}"))
        capacity.told.clear()
        await capacity.told.wait()
        compared.put_nowait((epoch, known.alive))

    async def none_sent() -> int:
        return 0

    tasks = Tasks()
    member = PostgresMembership(node.lease, tasks, none_sent)
    await asyncio.to_thread(postgres.server.stop)
    capacity = Capacity("node-1")
    await member.join(capacity, compare)
    assert member.epoch == 0
    await asyncio.to_thread(postgres.server.start)
    async with asyncio.timeout(WAIT_SECONDS):
        # Nobody is sent there before the places are compared.
        assert await compared.get() == (1, False)
        await until(lambda: node.lease.alive)
        (known,) = await directory.nodes()
        assert known.report.labels == {"zone": "a"}
        assert (known.report.epoch, known.report.used_by) == (1, {"ann": 2})
        await _forget_at_once(database, "node-1")
        assert await compared.get() == (2, False)
        # A copy of the state directory takes over, and this one does not fight for the name.
        await joined(database, "node-1")
        await until(lambda: not node.lease.alive)
        assert compared.empty()
    assert tasks.check().status != "failure"
    await member.close()


async def _forget_at_once(database: ClusterDatabase, name: str) -> None:
    async def work(connection: object) -> None:
        await connection.execute(  # type: ignore[attr-defined]
            "UPDATE nodes SET state = 'gone' WHERE name = $1", name
        )

    await database.transaction(work)


async def test_a_node_that_nobody_knows_is_no_place(database: ClusterDatabase) -> None:
    node: StoreNode = made_node(database, "node-1")
    for refused in (node.places.claim(claim("a")), node.lease.renew()):
        with pytest.raises(ClusterUnavailableError, match="has not joined its cluster yet"):
            await refused
