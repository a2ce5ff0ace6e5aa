"""Removals never take all threads of the engine, and wait for each other."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from orchestrator.ground.lane import Lane
from orchestrator.host.engine import docker_containers
from orchestrator.host.engine.docker import DockerEngine
from tests.support.limits import WAIT_SECONDS


async def until_waiting(lane: Lane) -> "asyncio.Task[Future[int]]":
    """A caller that waits for its place."""
    waiting = asyncio.create_task(lane.begin(Future[int]))
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


async def test_a_call_begins_when_another_has_ended() -> None:
    lane = Lane(1, 60)
    first = await lane.begin(Future[int])
    waiting = await until_waiting(lane)
    first.set_result(1)
    second = await waiting
    assert not second.done()


async def test_a_caller_that_gives_up_frees_no_place() -> None:
    """Its thread is still busy."""
    lane = Lane(1, 0.01)
    hanging = await lane.begin(Future[int])
    wrapped = asyncio.wrap_future(hanging)
    hanging.set_running_or_notify_cancel()
    wrapped.cancel()
    with pytest.raises(TimeoutError):
        await lane.begin(Future[int])
    hanging.set_result(1)
    async with asyncio.timeout(WAIT_SECONDS):
        await lane.begin(Future[int])


async def test_a_call_that_can_not_begin_keeps_no_place() -> None:
    def refuse() -> Future[int]:
        raise RuntimeError("closed")

    lane = Lane(1, 0.01)
    with pytest.raises(RuntimeError):
        await lane.begin(refuse)
    await lane.begin(Future[int])


async def test_a_cancelled_caller_keeps_no_place() -> None:
    lane = Lane(1, 60)
    first = await lane.begin(Future[int])
    waiting = await until_waiting(lane)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    first.set_result(1)
    async with asyncio.timeout(WAIT_SECONDS):
        await lane.begin(Future[int])


async def test_stops_find_a_thread_while_many_sandboxes_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Client:
        def pause(self, container_id: str) -> None:
            paused.append(container_id)

        def close(self) -> None: ...

    paused, may_end, removed = list[str](), threading.Event(), list[str]()

    def remove(client: Client, container_id: str) -> None:
        may_end.wait(WAIT_SECONDS)
        removed.append(container_id)

    engine = DockerEngine("0a1b2c3d", timeout=60, threads=2)
    client = Client()
    monkeypatch.setattr(engine._calls, "connect", lambda: client)
    monkeypatch.setattr(docker_containers, "remove", remove)
    removals = [asyncio.create_task(engine.remove(str(number))) for number in range(200)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await engine.pause("another")
        assert (paused, removed) == (["another"], [])
    finally:
        may_end.set()
        await asyncio.gather(*removals)
        await engine.close()
    assert len(removed) == 200
