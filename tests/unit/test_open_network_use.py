"""The open network's rules are checked again in time, as long as sandboxes use or expect it."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import pytest_asyncio

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.tasks import Tasks
from orchestrator.host.engine import docker_network
from orchestrator.host.engine.docker_network import TRUST_SECONDS, Bridge
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.sandbox.sandboxes.open_network import OpenNetworkUse
from tests.support.until import until


class World:
    """A network in use or not, with a clock that stands and pauses that end when told."""

    def __init__(self) -> None:
        self.engine = FakeEngine("0a1b2c3d")
        self.now = 1000.0
        self.sandboxes = self.looks = 0
        self.pauses: asyncio.Queue[float] = asyncio.Queue()
        self._go: asyncio.Queue[None] = asyncio.Queue()
        self.use = OpenNetworkUse(self.engine, "ours", lambda: self.now, self._pause)
        self.tasks = Tasks()

    async def _pause(self, seconds: float) -> None:
        self.pauses.put_nowait(seconds)
        await self._go.get()
        self.now += seconds

    def run(self) -> None:
        self.use.run(self.tasks, self._in_use)

    def _in_use(self) -> bool:
        self.looks += 1
        return self.sandboxes > 0

    async def rests(self, looks: int) -> None:
        """Waits until the task has seen so often that nothing is expected; then it waits."""
        await until(lambda: self.looks >= looks)

    async def pass_pause(self) -> None:
        """Waits until the task pauses, and ends the pause."""
        seconds = await self.pauses.get()
        assert seconds < TRUST_SECONDS
        self._go.put_nowait(None)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.use.close()


async def test_it_is_renewed_while_a_sandbox_uses_it(world: World) -> None:
    world.sandboxes = 1  # found after a restart
    world.run()
    for count in (1, 2, 3):
        await world.pass_pause()
        assert world.engine.renewals == count


async def test_others_are_expected_for_a_while_and_then_it_rests(world: World) -> None:
    world.run()
    await world.rests(2)
    await world.use.ensure()
    await world.pass_pause()  # the sandbox itself has checked
    assert world.engine.renewals == 0
    await world.pass_pause()
    assert world.engine.renewals == 1
    await world.pauses.get()
    world.now += 3600
    before = world.engine.renewals
    world._go.put_nowait(None)
    await world.rests(world.looks + 2)
    await world.use.ensure()
    await world.pauses.get()
    assert world.engine.renewals == before


async def test_a_failure_is_a_trouble_until_it_holds_again(world: World) -> None:
    world.sandboxes = 1
    world.engine.fail_next("ensure_open_network")
    world.run()
    await world.pass_pause()
    assert "open-network failed" in world.tasks.check().detail
    await world.pass_pause()
    assert world.tasks.check().status == "ok"


async def test_after_it_is_closed_nothing_is_renewed(world: World) -> None:
    world.sandboxes = 1
    world.run()
    await world.pass_pause()
    await world.pauses.get()
    await world.use.close()
    before = world.engine.renewals
    world._go.put_nowait(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.engine.renewals == before


class Client:
    """An engine whose rules can be installed while `well`."""

    timeout = 60

    def __init__(self) -> None:
        self.well = True
        self.helpers = 0
        self.networks: set[str] = set()

    def create_container_from_config(self, _config: dict[str, Any], _name: str) -> dict[str, str]:
        self.helpers += 1
        return {"Id": "c" * 64}

    def start(self, _container_id: str) -> None: ...

    def wait(self, _container_id: str, timeout: int) -> dict[str, int]:
        return {"StatusCode": 0 if self.well else 1}

    def logs(self, _container_id: str, tail: int) -> bytes:
        return b"nameserver 192.0.2.1"

    def remove_container(self, name: str, force: bool) -> None: ...

    def inspect_network(self, name: str) -> dict[str, Any]:
        if name not in self.networks:
            raise docker.errors.NotFound(name)
        options = {docker_network.BRIDGE_NAME: "pdk0a1b2c3d", docker_network.BRIDGE_ICC: "false"}
        return {"Driver": "bridge", "Options": options, "IPAM": {"Config": None}}

    def create_network(self, name: str, **_options: object) -> None:
        self.networks.add(name)

    def containers(self, filters: object) -> list[object]:
        return []

    def remove_network(self, name: str) -> None:
        self.networks.discard(name)


def test_a_renewal_extends_the_trust_and_a_failed_one_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(docker_network, "time", SimpleNamespace(monotonic=lambda: now[0]))
    client, bridge = Client(), Bridge("0a1b2c3d")
    given: Any = client
    bridge.ensure(given, "ours")
    now[0] += TRUST_SECONDS - 1
    bridge.ensure(given, "ours", renew=True)
    now[0] += TRUST_SECONDS - 1
    helpers = client.helpers
    bridge.ensure(given, "ours")
    assert client.helpers == helpers, "a creation checked the rules again"
    client.well = False
    for renew in (True, False):
        with pytest.raises(EngineUnavailableError, match="could not be set"):
            bridge.ensure(given, "ours", renew=renew)
        assert not bridge.trusted()
    client.well = True
    bridge.ensure(given, "ours")
    assert bridge.trusted()
