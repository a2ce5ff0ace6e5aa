"""The time of a coroutine's steps is reported, and its behaviour does not change."""

import asyncio

import pytest

from orchestrator.ground.fair_share import Metered


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_its_own_steps_are_told_and_waiting_is_not() -> None:
    clock, spent = Clock(), list[float]()
    go_on = asyncio.Event()

    async def work() -> str:
        clock.now += 1
        await go_on.wait()
        clock.now += 2
        await asyncio.sleep(0)
        clock.now += 4
        return "done"

    running = asyncio.create_task(_awaited(Metered(work(), spent.append, clock)))
    await asyncio.sleep(0)
    clock.now += 100
    assert spent == [1]
    go_on.set()
    assert await running == "done"
    assert spent == [1, 2, 4]


async def test_what_it_raises_is_raised() -> None:
    clock, spent = Clock(), list[float]()

    async def work() -> None:
        clock.now += 1
        raise KeyError("x")

    with pytest.raises(KeyError):
        await Metered(work(), spent.append, clock)
    assert spent == [1]


async def test_it_is_cancelled_where_it_waits() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.create_task(_awaited(Metered(work(), lambda _: None)))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert ended.is_set()


async def _awaited(metered: Metered[str] | Metered[None]) -> str | None:
    return await metered
