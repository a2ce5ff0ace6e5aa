"""Removals never take all threads of the engine, and wait for each other."""

import asyncio
import threading

import pytest

from orchestrator.engine import docker_containers
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.lane import Lane


async def test_callers_wait_while_others_end() -> None:
    lane, order = Lane(1, 0.05), list[int]()

    async def call(number: int) -> None:
        async with lane.turn():
            order.append(number)
            await asyncio.sleep(0.03)

    # The last waits longer than the limit, but never longer than that between two ends.
    await asyncio.gather(*map(call, range(5)))
    assert sorted(order) == [0, 1, 2, 3, 4]


async def test_callers_give_up_if_nothing_ends() -> None:
    lane = Lane(1, 0.01)
    async with lane.turn():
        with pytest.raises(TimeoutError):
            async with lane.turn():
                pytest.fail("two at a time")
    async with lane.turn():
        pass


async def test_a_cancelled_caller_keeps_no_place() -> None:
    lane = Lane(1, 60)
    async with lane.turn():
        waiting = asyncio.create_task(lane.turn().__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(5), lane.turn():
        pass


async def test_stops_find_a_thread_while_many_sandboxes_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Client:
        def pause(self, container_id: str) -> None:
            paused.append(container_id)

        def close(self) -> None: ...

    paused, may_end, removed = list[str](), threading.Event(), list[str]()

    def remove(client: Client, container_id: str) -> None:
        may_end.wait(60)
        removed.append(container_id)

    engine = DockerEngine("0a1b2c3d", timeout=60, threads=2)
    client = Client()
    monkeypatch.setattr(engine, "_connect", lambda: client)
    monkeypatch.setattr(docker_containers, "remove", remove)
    removals = [asyncio.create_task(engine.remove(str(number))) for number in range(200)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            await engine.pause("another")
        assert (paused, removed) == (["another"], [])
    finally:
        may_end.set()
        await asyncio.gather(*removals)
        await engine.close()
    assert len(removed) == 200
