"""Whatever is killed at whatever step of a move, the session has one life, with all that it has.

Two control planes are the nodes of a cluster in memory. One that is killed writes nothing any more
and reaches nobody; the next control plane of that node takes over what is on its disk.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st
from pydantic import SecretStr

from api.operations.snapshots import request_in
from api.views import turns
from orchestrator import control_plane
from orchestrator.cluster.base import Amounts, NodeReport
from orchestrator.cluster.directory import ClusterNode
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import NodeUnavailableError, PaddockError
from orchestrator.ground.store.database_file import StoreError
from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.workspace import slots
from orchestrator.operate.moves.way import NodeWay
from orchestrator.operate.snapshots.snapshot import ReceivedSnapshot
from orchestrator.record.audit.verification import verify
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sessions.in_cluster import departures
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from tests.api.conftest import IMAGE
from tests.support.cluster_in_memory import Cluster
from tests.support.fake_agent import Agents
from tests.support.leaks import unmount_all
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import pause, until

pytestmark = pytest.mark.slow

ADMIN = Principal("admin", Role.ADMIN)
NAMES = ("one", "two")
SECRETS = {"SECRET_OF_IT": "of-nobody-else"}
# More than a move has on either side.
MOST_WRITES = 10


class Machine:
    """One node: its directory and its engine, which outlive its control planes."""

    def __init__(self, directory: Path, name: str, cluster: Cluster) -> None:
        self.name = name
        self.agents = Agents()
        self.engine = FakeEngine(
            images={IMAGE: Image("sha256:1", {LABEL_IMAGE: "sandbox"})},
            on_start=self.agents.start,
            on_stop=self.agents.stop,
        )
        self.settings = Settings(
            state_dir=directory / name,
            admin_key=SecretStr("pdk_admin-key-of-the-tests"),
            min_free_memory_bytes=0,
            min_free_disk_bytes=0,
            hello_timeout=WAIT_SECONDS,
            workspace_quota="none",
        ).model_copy(update={"cluster": "blue", "node": name})
        self.cluster = cluster
        self._opener = cluster.opener(name)
        self.plane: ControlPlane | None = None

    async def start(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control_plane, "open_cluster", self._opener)
            self.plane = await reopened(self.settings, self.engine, self.agents)

    def dies_after(self, writes: int) -> None:
        """From then on it writes nothing, and nobody reaches it."""
        assert self.plane is not None
        database, write = self.plane.database, self.plane.database.write

        async def counted(function: Any, **options: Any) -> Any:
            nonlocal writes
            if writes == 0:
                self.plane = None
                raise StoreError("killed")
            writes -= 1
            return await write(function, **options)

        database.write = counted  # type: ignore[method-assign]

    def session(self) -> Session | None:
        """The session, if it is active here."""
        assert self.plane is not None
        found = self.plane.sessions.registry.get("box")
        return found if found is not None and found.live else None


class Nodes:
    """Both of them, as each sees the other."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster()
        self.cluster.nodes = self.nodes
        self.machines = {name: Machine(directory, name, self.cluster) for name in NAMES}

    async def nodes(self) -> Sequence[ClusterNode]:
        has, nothing = Amounts(8, 1 << 34, 40), Amounts(0, 0, 0)
        return [
            ClusterNode(NodeReport(name, 1, "ready", has, nothing, levels=("low",)), True, 0)
            for name in NAMES
        ]

    def _at(self, name: str) -> ControlPlane:
        plane = self.machines[name].plane
        if plane is None:
            raise NodeUnavailableError(f"the node {name} does not answer")
        return plane

    async def send(self, _: NodeWay, node: ClusterNode, body: AsyncIterator[bytes]) -> str:
        plane = self._at(node.name)

        async def wanted(received: ReceivedSnapshot) -> NewSession:
            return request_in(plane.levels, received.manifest.session)

        receiving = plane.receiver.receive(lambda _: True, body, turns.summary, wanted)
        try:
            return await receiving
        except StoreError:
            raise NodeUnavailableError("it was killed") from None

    async def settle(self, _: NodeWay, node: ClusterNode, session_key: str) -> None:
        await self._at(node.name).receiver.settle(session_key)


async def _made(nodes: Nodes) -> Session:
    """A session with files and a secret on the first node."""
    for machine in nodes.machines.values():
        await machine.start()
    plane = nodes.machines["one"].plane
    assert plane is not None
    registered = await plane.sessions.create(
        ADMIN, NewSession(id="box", permission_level="low", secrets=SECRETS)
    )
    session = registered.session
    (Path(session.root_dir) / "notes").write_text("mine")
    return session


async def _after(nodes: Nodes, earlier: Session) -> str:
    """Where the session lives at the end. Everything else of it must be gone."""
    cluster = nodes.cluster
    (placed,) = cluster.places.values()
    home = nodes.machines[placed.node]
    (other,) = (each for each in nodes.machines.values() if each is not home)
    await until(lambda: home.session() is not None and other.session() is None)
    session = home.session()
    assert session is not None
    assert not session.moving
    assert home.plane is not None
    assert other.plane is not None
    assert cluster.places == {session.key: placed}
    assert (placed.number, session.place) == (session.place, placed.number)
    assert session.handle_sha256 == earlier.handle_sha256
    assert (Path(session.root_dir) / "notes").read_text() == "mine"
    async with home.plane.sessions.suspensions.using(ADMIN, session):
        assert session.secrets.variables == SECRETS
    await until(lambda: not cluster.moves)
    assert cluster.workspaces.keys() == {"box"}
    assert cluster.workspaces["box"][1] == home.name
    assert cluster.usage("admin").sessions == 1

    async def is_clean() -> bool:
        assert other.plane is not None
        kept = await other.plane.database.read(slots.kept)
        moves = await other.plane.database.read(_count_of_moves)
        return not kept and not moves

    turn = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while not await is_clean():
            turn += 1
            await pause(turn)
    assert not (other.settings.state_dir / "session-workspaces" / "box").is_symlink()
    for machine in nodes.machines.values():
        assert machine.plane is not None
        for key in await machine.plane.database.read(_chains):
            assert (await verify(machine.plane.database, key)).ok
    return home.name


def _count_of_moves(connection: Any) -> int:
    (count,) = connection.execute("SELECT count(*) FROM moves").fetchone()
    return int(count)


def _chains(connection: Any) -> list[str]:
    rows = connection.execute("SELECT DISTINCT session_key FROM events")
    return [str(key) for (key,) in rows]


async def _move(nodes: Nodes, session: Session) -> None:
    plane = nodes.machines["one"].plane
    assert plane is not None
    with suppress(PaddockError, StoreError):
        await plane.mover.move(session, "two")


@how(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    source=st.none() | st.integers(0, MOST_WRITES),
    target=st.none() | st.integers(0, MOST_WRITES),
    database=st.sampled_from(("there", "away before", "away after", "answer lost")),
)
def test_one_life_after_any_loss(source: int | None, target: int | None, database: str) -> None:
    directory = Path(tempfile.mkdtemp(prefix="pdk-"))
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        try:
            runner.run(_lost(directory, patch, source, target, database))
        finally:
            unmount_all(directory)
            shutil.rmtree(directory)


async def _lost(
    directory: Path,
    patch: pytest.MonkeyPatch,
    source: int | None,
    target: int | None,
    database: str,
) -> None:
    nodes = Nodes(directory)
    patch.setattr(NodeWay, "send", partial_method(nodes.send))
    patch.setattr(NodeWay, "settle", partial_method(nodes.settle))
    patch.setattr(departures, "_FIRST_PAUSE", 0.001)
    patch.setattr(departures, "_LONGEST_PAUSE", 0.01)
    session = await _made(nodes)
    planes = {each.name: each.plane for each in nodes.machines.values()}
    for name, writes in (("one", source), ("two", target)):
        if writes is not None:
            nodes.machines[name].dies_after(writes)

    def lose(done: bool) -> None:
        if database == ("away after" if done else "away before"):
            nodes.cluster.away = True

    nodes.cluster.at_commit = lose
    nodes.cluster.loses_answers = database == "answer lost"
    await _move(nodes, session)
    # Both nodes start again, and the cluster answers.
    for machine in nodes.machines.values():
        plane = planes[machine.name]
        assert plane is not None
        machine.plane = None
        with suppress(PaddockError, StoreError):
            await plane.close()
    nodes.cluster.away = nodes.cluster.loses_answers = False
    nodes.cluster.at_commit = lambda _: None
    for machine in nodes.machines.values():
        await machine.start()
    home = await _after(nodes, session)
    if (source, target, database) == (None, None, "there"):
        assert home == "two"
    for machine in nodes.machines.values():
        assert machine.plane is not None
        await machine.plane.close()
        for agent in machine.agents.by_run_dir.values():
            await agent.close()


def partial_method(function: Any) -> Any:
    """The function in place of a method, which gets its object, too."""

    async def method(self: object, *arguments: Any) -> Any:
        return await function(self, *arguments)

    return method
