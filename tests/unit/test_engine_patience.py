"""How long the engine may take: a slow host is not one that hangs."""

import threading
from typing import Any

import docker
import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.engine.docker_helper import network_helper, run_helper
from orchestrator.host.engine.docker_links import Links, link_network
from orchestrator.host.engine.docker_network import Bridge
from tests.support.limits import WAIT_SECONDS


async def test_the_open_network_has_the_time_out_for_each_of_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end = threading.Event()

    def hang(*_arguments: object, renew: bool) -> None:
        may_end.wait(WAIT_SECONDS)

    engine = DockerEngine("0a1b2c3d", timeout=0.01, threads=1)
    monkeypatch.setattr(engine._calls, "connect", lambda: None)
    monkeypatch.setattr(Bridge, "ensure", hang)
    try:
        with pytest.raises(EngineUnavailableError) as caught:
            await engine.ensure_open_network("paddock/sandbox")
        assert caught.value.detail.endswith("make the open network within 0.05 s")
    finally:
        may_end.set()
        await engine.close()


def test_the_steps_are_those_that_the_bridge_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Links, "possible", lambda _, found: link_network(found))
    client = Client()
    Bridge("0a1b2c3d").ensure(client, "paddock/sandbox")  # type: ignore[arg-type]
    assert client.steps == ["rules", "bridge", "bridge", "rules", "name servers"]
    assert len(client.steps) == Bridge.STEPS


def test_a_helper_has_as_long_as_the_engine() -> None:
    client = Client()
    helper = network_helper("paddock/sandbox", "0a1b2c3d", "host", "true")
    run_helper(client, "paddock-net-0a1b2c3d", helper, "it failed")  # type: ignore[arg-type]
    assert client.waited == [client.timeout]


class Client:
    """An engine whose containers end well."""

    timeout = 600

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.waited: list[int] = []
        self.network: dict[str, Any] | None = None

    def create_container_from_config(self, config: dict[str, Any], _name: str) -> dict[str, str]:
        host = config["HostConfig"]["NetworkMode"] == "host"
        self.steps.append("rules" if host else "name servers")
        return {"Id": "c" * 64}

    def start(self, _container_id: str) -> None: ...

    def wait(self, _container_id: str, timeout: int) -> dict[str, int]:
        self.waited.append(timeout)
        return {"StatusCode": 0}

    def logs(self, _container_id: str, tail: int) -> bytes:
        return b"nameserver 192.0.2.1"

    def remove_container(self, name: str, force: bool) -> None: ...

    def inspect_network(self, name: str) -> dict[str, Any]:
        if self.network is None:
            raise docker.errors.NotFound(name)
        return self.network

    def create_network(self, _name: str, *, options: object, ipam: Any, **_: object) -> None:
        self.steps.append("bridge")
        pool = {"Subnet": "10.1.0.0/16", "Gateway": "10.1.0.1"}
        config = [pool] if ipam is None else ipam["Config"]
        self.network = {"Driver": "bridge", "Options": options, "IPAM": {"Config": config}}

    def containers(self, filters: object) -> list[object]:
        return []

    def remove_network(self, _name: str) -> None:
        self.network = None
