"""Claims, ends, losses and repeated messages in any order, beside a model in memory."""

import asyncio
import dataclasses
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from orchestrator.cluster import messages
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.cluster.postgres.pool import Access, ClusterDatabase
from orchestrator.cluster.postgres.usage import counted
from orchestrator.ground.errors import ConflictError, RateLimitedError
from orchestrator.ground.limits import KeyLimits, KeyUsage, check_quota
from tests.support.cluster_store import (
    CLUSTER,
    StoreNode,
    claim,
    counted_anew,
    joined,
    make_schema,
    set_lease,
    usage_of,
)
from tests.support.postgres import FreshDatabase

IDS = st.sampled_from(["a", "A", "b", "c"])
NODES = st.integers(0, 1)
OWNERS = st.sampled_from(["ann", "bob"])
CORES = st.sampled_from([0.1, 0.5, 1.7])
QUOTA = KeyLimits(max_sessions=3, max_cpus=2.5, max_workspaces=3, max_workspace_bytes=500)

TABLES = "nodes, outboxes, places, workspaces, records, key_usage"


@dataclasses.dataclass
class Life:
    """A session of the model."""

    id: str
    owner: str
    node: int
    cpus: float
    before: int  # what its workspace had before it


class Cluster(RuleBasedStateMachine):
    """Two nodes and what they should have."""

    dsn = ""
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.database = ClusterDatabase(Access(CLUSTER, self.dsn))
        self.live: dict[str, Life] = {}
        self.spaces: dict[str, tuple[str, int, int]] = {}  # owner, node, bytes
        self.count = 0
        self.told: list[list[Any]] = [[], []]
        self.nodes: list[StoreNode] = self.do(self.begin())

    async def begin(self) -> list[StoreNode]:
        await self.database.open()

        async def empty(connection: Any) -> None:
            await connection.execute(f"TRUNCATE {TABLES}")

        await self.database.transaction(empty)
        return [await joined(self.database, f"node-{number}") for number in range(2)]

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def used(self, owner: str) -> KeyUsage:
        lives = [each for each in self.live.values() if each.owner == owner]
        spaces = [size for whose, _, size in self.spaces.values() if whose == owner]
        cpus = sum(each.cpus for each in lives)
        return KeyUsage(len(lives), round(cpus, 6), len(lives), len(spaces), sum(spaces))

    @rule(node=NODES, name=IDS, owner=OWNERS, cpus=CORES, size=st.integers(1, 200))
    def claims(self, node: int, name: str, owner: str, cpus: float, size: int) -> None:
        self.count += 1
        key, low = f"k{self.count}", name.lower()
        amounts = KeyUsage(1, cpus, 1, 1, size)
        asked = claim(name, key, owner, amounts, QUOTA)
        kept = self.spaces.get(low)
        conflict = any(each.id == low for each in self.live.values()) or (
            kept is not None and kept[:2] != (owner, node)
        )
        before = 0 if kept is None else kept[2]
        grown = max(0, size - before)
        more = dataclasses.replace(
            amounts, workspaces=0 if kept else 1, workspace_bytes=grown if kept else size
        )
        try:
            check_quota(QUOTA, self.used(owner), more)
            over = False
        except RateLimitedError:
            over = True
        try:
            self.do(self.nodes[node].places.claim(asked))
        except ConflictError:
            assert conflict
        except RateLimitedError:
            assert over
            assert not conflict
        else:
            assert not conflict
            assert not over
            self.live[key] = Life(low, owner, node, cpus, before)
            self.spaces[low] = (owner, node, max(before, size))

    def tell(self, node: int, kind: Kind, body: Any) -> None:
        self.told[node].append(self.nodes[node].outbox.put(kind, body))
        self.do(self.nodes[node].outbox.delivered())

    @rule(node=NODES, number=st.integers(0, 20))
    def ends(self, node: int, number: int) -> None:
        """Also sessions that have ended, are another node's, or never were."""
        self.tell(node, Kind.RELEASED, messages.released(f"k{number}", "2026"))
        life = self.live.get(f"k{number}")
        if life is not None and life.node == node:
            del self.live[f"k{number}"]

    @rule(node=NODES, number=st.integers(0, 20))
    def withdraws(self, node: int, number: int) -> None:
        self.tell(node, Kind.UNCLAIMED, messages.unclaimed(f"k{number}"))
        life = self.live.get(f"k{number}")
        if life is None or life.node != node:
            return
        del self.live[f"k{number}"]
        if life.id in self.spaces and life.before:
            owner, where, _ = self.spaces[life.id]
            self.spaces[life.id] = (owner, where, life.before)
        else:
            self.spaces.pop(life.id, None)

    @rule(node=NODES, name=IDS)
    def purges(self, node: int, name: str) -> None:
        """Only what no session has, as nodes do."""
        low = name.lower()
        if any(each.id == low for each in self.live.values()):
            return
        self.tell(node, Kind.PURGED, messages.purged(name))
        if low in self.spaces and self.spaces[low][1] == node:
            del self.spaces[low]

    @rule(node=NODES, number=st.integers(0, 20), cpus=CORES)
    def settles(self, node: int, number: int, cpus: float) -> None:
        life = self.live.get(f"k{number}")
        size = 0 if life is None or life.id not in self.spaces else self.spaces[life.id][2]
        amounts = KeyUsage(1, cpus, 1, 1, size)
        self.tell(node, Kind.SETTLED, messages.settled(f"k{number}", amounts))
        if life is not None and life.node == node:
            life.cpus = cpus

    @rule(number=st.integers(0, 20), cpus=CORES)
    def grows(self, number: int, cpus: float) -> None:
        life = self.live.get(f"k{number}")
        if life is None:
            return
        more = KeyUsage(0, max(0.0, round(cpus - life.cpus, 6)))
        most = KeyUsage(1, cpus, 1)
        growth = self.nodes[life.node].usage.grow(life.owner, f"k{number}", most, QUOTA)
        try:
            check_quota(QUOTA, self.used(life.owner), more)
        except RateLimitedError:
            with pytest.raises(RateLimitedError):
                self.do(growth)
        else:
            self.do(growth)
            life.cpus = max(life.cpus, cpus)

    @rule(node=NODES, first=st.integers(0, 30), count=st.integers(1, 5))
    def repeats(self, node: int, first: int, count: int) -> None:
        """Old messages come again."""
        again = self.told[node][first : first + count]
        self.do(self.nodes[node].delivery.deliver(again))

    @rule(node=NODES)
    def restarts(self, node: int) -> None:
        outbox = self.nodes[node].outbox
        name = f"node-{node}"
        self.nodes[node] = self.do(joined(self.database, name, sent=outbox.sent))

    @rule(node=NODES)
    def is_lost(self, node: int) -> None:
        name = f"node-{node}"
        self.do(set_lease(self.database, name, "-1 s"))
        self.do(NodeAdmin(self.database).forget(name))
        self.live = {key: each for key, each in self.live.items() if each.node != node}
        self.spaces = {name: each for name, each in self.spaces.items() if each[1] != node}
        self.nodes[node] = self.do(joined(self.database, name))
        self.told[node].clear()

    @invariant()
    def every_id_lives_where_it_should(self) -> None:
        for number, node in enumerate(self.nodes):
            mine = self.do(node.places.mine())
            expected = {key for key, each in self.live.items() if each.node == number}
            assert mine.sessions.keys() == expected
            here = {name for name, each in self.spaces.items() if each[1] == number}
            assert mine.workspaces == here

    @invariant()
    def quotas_add_up(self) -> None:
        for owner in ("ann", "bob"):
            used = self.do(usage_of(self.database, owner))
            assert used == self.do(counted_anew(self.database, owner))
            assert used == counted(self.used(owner))

    def teardown(self) -> None:
        self.do(self.database.close())


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as found:
        yield found


def test_whatever_happens_no_id_lives_twice_and_quotas_add_up(
    postgres: FreshDatabase, runner: asyncio.Runner
) -> None:
    runner.run(make_schema(postgres.dsn))
    machine = type("ThisCluster", (Cluster,), {"dsn": postgres.dsn, "runner": runner})
    run_state_machine_as_test(
        machine, settings=settings(settings.default, max_examples=15, stateful_step_count=25)
    )
