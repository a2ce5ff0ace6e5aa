"""Control planes with fake engines as nodes of one cluster, and its real database."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import (
    ClusterUnavailableError,
    ConflictError,
    RateLimitedError,
)
from orchestrator.ground.limits import KeyLimits
from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.workspace import mounts
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import ExecRequest, NewSession
from orchestrator.state.session import Session
from paddock.contract.words import Rationale, Status
from tests.api.conftest import IMAGE, served, usual_settings
from tests.support.cluster_store import CLUSTER, make_schema
from tests.support.fake_agent import Agents
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import FreshDatabase
from tests.support.restart import reopened
from tests.support.until import pause

ADMIN = Principal("admin", Role.ADMIN)


class Node:
    """A node: its directory and its engine, which outlive its control planes."""

    def __init__(self, name: str, database: FreshDatabase, directory: Path) -> None:
        self.agents = Agents()
        self.engine = FakeEngine(
            images={IMAGE: Image("sha256:1", {LABEL_IMAGE: "sandbox"})},
            on_start=self.agents.start,
            on_stop=self.agents.stop,
        )
        paths = {"state_dir": directory, "workspaces_dir": directory / "session-workspaces"}
        part = {"cluster": CLUSTER, "cluster_database": SecretStr(database.dsn), "node": name}
        self.settings: Settings = usual_settings().model_copy(update=paths | part)
        self.plane: ControlPlane

    async def start(self) -> None:
        self.plane = await reopened(self.settings, self.engine, self.agents)

    async def close(self) -> None:
        await self.plane.close()
        await self.agents.close()

    async def create(self, name: str, principal: Principal = ADMIN) -> Session:
        request = NewSession(id=name, permission_level="low")
        return (await self.plane.sessions.create(principal, request)).session

    async def end(self, session: Session, *, purge: bool = True) -> None:
        await self.plane.sessions.close(ADMIN, session, purge=purge)


@pytest.fixture
async def nodes(
    postgres: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Sequence[Node]]:
    for name in ("PADDOCK_CONFIG_FILE", "PADDOCK_WORKSPACES_DIR", "SESSION_WORKSPACES_DIR"):
        monkeypatch.delenv(name, raising=False)
    await make_schema(postgres.dsn)
    directory = Path(tempfile.mkdtemp(prefix="pdk-"))
    async with AsyncExitStack() as closers:
        closers.callback(_removed, directory)
        made = [Node(name, postgres, directory / name) for name in ("one", "two")]
        for node in made:
            await node.start()
            closers.push_async_callback(node.close)
        yield made


def _removed(directory: Path) -> None:
    for point in reversed(mounts.mounts_under(str(directory))):
        mounts.unmount(point)
    shutil.rmtree(directory)


def table(database: FreshDatabase, query: str) -> list[str]:
    return database.sql(query).split()


async def test_one_id_is_one_life(nodes: Sequence[Node], postgres: FreshDatabase) -> None:
    """64 clients ask for one id at two nodes at once."""
    results = await asyncio.gather(
        *(nodes[number % 2].create("same") for number in range(64)), return_exceptions=True
    )
    made = [each for each in results if isinstance(each, Session)]
    refused = [each for each in results if not isinstance(each, Session)]
    assert len(made) == 1, refused
    assert {type(each) for each in refused} == {ConflictError}
    assert len(nodes[0].engine.containers) + len(nodes[1].engine.containers) == 1
    assert table(postgres, "SELECT session_key FROM places") == [made[0].key]
    assert table(postgres, "SELECT sessions FROM key_usage") == ["1"]
    (owner,) = [node for node in nodes if node.plane.sessions.registry.live]
    await owner.end(made[0])
    await owner.plane.outbox.delivered()
    assert table(postgres, "SELECT session_key FROM places") == []
    assert table(postgres, "SELECT id FROM workspaces") == []
    assert table(postgres, "SELECT sessions + workspaces + workspace_bytes FROM key_usage") == ["0"]


async def test_an_id_goes_on_where_its_workspace_is(nodes: Sequence[Node]) -> None:
    one, two = nodes
    session = await one.create("kept")
    await one.end(session, purge=False)
    # The end may not have been delivered yet; a claim of this node waits for that.
    again = await one.create("kept")
    await one.end(again, purge=False)
    await one.plane.outbox.delivered()
    with pytest.raises(ConflictError, match="on another node"):
        await two.create("kept")
    await one.plane.sessions.purge(ADMIN, "kept")
    await one.plane.outbox.delivered()
    assert (await two.create("kept")).live


async def test_a_quota_holds_for_the_cluster(nodes: Sequence[Node]) -> None:
    client = Principal("ci", Role.OPERATOR, limits=KeyLimits(max_sessions=3))
    results = await asyncio.gather(
        *(nodes[number % 2].create(f"s{number}", client) for number in range(16)),
        return_exceptions=True,
    )
    made = [each for each in results if isinstance(each, Session)]
    refused = [each for each in results if not isinstance(each, Session)]
    assert len(made) == 3, refused
    assert {type(each) for each in refused} == {RateLimitedError}
    # An end makes room at once, on every node that asks afterwards.
    (owner, *_) = [node for node in nodes if node.plane.sessions.registry.get(made[0].id)]
    await owner.end(made[0])
    await owner.create("next", client)


async def test_a_rate_holds_on_each_node(nodes: Sequence[Node]) -> None:
    """What one node answers takes nothing from another: together they bound a key's requests."""
    async with AsyncExitStack() as stack:
        doors = [
            await stack.enter_async_context(served(each.plane, each.engine, each.agents))
            for each in nodes
        ]
        # One request, and the next one after more than a quarter of an hour.
        body = {"name": "ci", "role": "operator", "requests_per_second": 0.001}
        key = (await doors[0].json("POST", "/api/keys", json=body, status=201))["key"]
        for door in doors:
            turn = 0
            while door.plane.keys.authenticate(key) is None:  # the database tells the others
                turn += 1
                await pause(turn)
            await door.json("GET", "/api/policies", key=key)
            problem = await door.problem(429, "rate_limited", "GET", "/api/policies", key=key)
            assert problem["limit"] == "requests_per_second"


async def test_the_database_may_go(nodes: Sequence[Node], postgres: FreshDatabase) -> None:
    """What runs goes on and what stops is told later; what begins is refused."""
    one, two = nodes
    first, second = await one.create("first"), await one.create("second")
    await one.plane.outbox.delivered()
    postgres.server.stop()
    command = await one.plane.executions.start(ADMIN, second, ExecRequest(argv=["pwd"]))
    assert (await one.plane.executions.wait(second, command)).exit_code == 0
    await one.end(first)
    assert first.status is Status.COMPLETED
    with pytest.raises(ClusterUnavailableError):
        await two.create("third")
    with pytest.raises(ClusterUnavailableError):
        await one.create("first")
    assert one.plane.outbox.waiting > 0
    postgres.server.start()
    async with asyncio.timeout(WAIT_SECONDS):
        await _told(one)
    assert table(postgres, "SELECT id FROM places") == ["second"]
    assert (await two.create("first")).live


async def _told(node: Node) -> None:
    """Returns once the database answers again, and has been told everything."""
    turn = 0
    while True:
        try:
            await node.plane.outbox.delivered()
        except ClusterUnavailableError:
            turn += 1
            await pause(turn)
        else:
            return


async def test_a_restart_keeps_places_and_gives_back_the_others(
    nodes: Sequence[Node], postgres: FreshDatabase
) -> None:
    one, _ = nodes
    session = await one.create("stays")
    await one.plane.close()
    postgres.sql(
        "INSERT INTO places SELECT 'ghost', 'ghost-key', owner, node, epoch, number, recovery,"
        " sessions, micro_cpus, memory_bytes, workspaces, workspace_before FROM places"
    )
    await one.start()
    await one.plane.outbox.delivered()
    assert table(postgres, "SELECT session_key FROM places") == [session.key]
    assert one.plane.sessions.registry.get("stays") is not None


async def test_sessions_of_a_node_that_was_given_up_end_as_moved(
    nodes: Sequence[Node], postgres: FreshDatabase
) -> None:
    one, two = nodes
    await one.create("lost")
    await one.plane.close()
    postgres.sql("DELETE FROM workspaces WHERE node = 'one'")
    postgres.sql("DELETE FROM places WHERE node = 'one'")
    postgres.sql("UPDATE nodes SET state = 'gone' WHERE name = 'one'")
    elsewhere = await two.create("lost")
    await one.start()
    found = one.plane.sessions.registry.get("lost")
    assert found is not None
    assert found.termination is not None
    assert found.termination.rationale_code is Rationale.MOVED
    assert one.engine.containers == {}
    await one.plane.outbox.delivered()
    assert table(postgres, "SELECT session_key FROM places") == [elsewhere.key]
    assert one.plane.node_capacity.report().epoch == 2
