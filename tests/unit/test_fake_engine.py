"""The fake engine behaves as the engine's contract requires."""

import asyncio
from contextlib import aclosing

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import ContainerState, Limits, MountedAgent, SandboxSpec
from orchestrator.host.engine.fake import FakeEngine

AGENT = MountedAgent("/agents/1", ("/agent",))


def spec(name: str = "one") -> SandboxSpec:
    limits = Limits(cpus=1, memory_bytes=2**28, pids=64, tmp_bytes=2**24, shm_bytes=0)
    return SandboxSpec(name, "image", {"paddock.session": "s"}, (), limits, False, None, AGENT)


async def test_a_container_lives_and_ends() -> None:
    started: list[str] = []
    stopped: list[str] = []

    async def on_start(spec: SandboxSpec) -> None:
        started.append(spec.name)

    async def on_stop(spec: SandboxSpec) -> None:
        stopped.append(spec.name)

    engine = FakeEngine(on_start=on_start, on_stop=on_stop)
    container_id = await engine.create(spec())
    found = await engine.inspect(container_id)
    assert found is not None
    assert found.state is ContainerState.RUNNING
    assert found.limits == {"cpus": 1, "memory_bytes": 2**28, "pids": 64}
    assert [container.id for container in await engine.list()] == [container_id]
    await engine.remove(container_id)
    await engine.remove(container_id)
    assert await engine.inspect(container_id) is None
    assert (started, stopped) == (["one"], ["one"])


async def test_events_reach_every_reader() -> None:
    engine = FakeEngine()
    container_id = await engine.create(spec())

    async def read() -> list[tuple[str, int | None]]:
        async with aclosing(engine.events()) as events:
            return [(event.action, event.exit_code) async for event in events]

    async with aclosing(engine.events()) as first:
        assert (await anext(first)).action == "resync"
        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        await engine.pause(container_id)
        await engine.resume(container_id)
        await engine.die(container_id, 1)
        await engine.close()
        seen = [event.action async for event in first]
    assert seen == ["pause", "unpause", "die"]
    assert await reader == [("resync", None), ("pause", None), ("unpause", None), ("die", 1)]


async def test_calls_fail_and_hang_on_demand() -> None:
    engine = FakeEngine()
    engine.fail_next("create")
    with pytest.raises(EngineUnavailableError):
        await engine.create(spec())
    assert await engine.list() == []

    released = engine.hang_next("create")
    creating = asyncio.create_task(engine.create(spec()))
    await asyncio.sleep(0)
    assert not creating.done()
    released.set()
    assert await creating in engine.containers


async def test_a_failing_start_leaves_nothing() -> None:
    async def on_start(_: SandboxSpec) -> None:
        raise EngineUnavailableError("no")

    engine = FakeEngine(on_start=on_start)
    with pytest.raises(EngineUnavailableError):
        await engine.create(spec())
    assert engine.containers == {}
