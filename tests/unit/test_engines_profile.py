"""A sandbox has our profile of system calls, unless somebody gave the engine another one."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from orchestrator.host.engine import docker
from orchestrator.host.engine.base import EngineEvent, Limits, MountedAgent, SandboxSpec
from orchestrator.host.engine.docker import DockerEngine

SPEC = SandboxSpec(
    name="paddock-1",
    image="sha256:1",
    labels={},
    binds=(),
    limits=Limits(cpus=1, memory_bytes=1 << 28, pids=64, tmp_bytes=1 << 20, shm_bytes=0),
    tmp_exec=False,
    network=None,
    agent=MountedAgent(directory="/agent", command=("agent",)),
)


class Client:
    def __init__(self) -> None:
        self.profile = "default"
        self.looks = 0
        self.made: list[list[str]] = []

    def info(self) -> dict[str, Any]:
        self.looks += 1
        return {"SecurityOptions": [f"name=seccomp,profile={self.profile}"]}

    def create_container_from_config(self, config: dict[str, Any], _name: str) -> dict[str, Any]:
        self.made.append(config["HostConfig"]["SecurityOpt"])
        return {"Id": "c" * 64}

    def start(self, _container_id: str) -> None: ...


class Restarted:
    """A stream of events whose only one is that the engine may have been restarted."""

    def __init__(self, *_arguments: object) -> None: ...

    async def events(self) -> AsyncGenerator[EngineEvent, None]:
        yield EngineEvent("resync", "", {})

    def stop(self) -> None: ...


async def test_a_sandbox_keeps_the_profile_that_somebody_gave_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, engine = Client(), DockerEngine("0a1b2c3d", timeout=60)
    monkeypatch.setattr(engine._calls, "connect", lambda: client)
    monkeypatch.setattr(docker, "EventStream", Restarted)
    try:
        await engine.create(SPEC)
        await engine.create(SPEC)
        assert client.looks == 1
        assert all(option[1].startswith("seccomp={") for option in client.made)
        client.profile = "/etc/docker/our.json"
        assert [event.action async for event in engine.events()] == ["resync"]
        await engine.create(SPEC)
        assert client.made[2] == ["no-new-privileges"]
    finally:
        await engine.close()
