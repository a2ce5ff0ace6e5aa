"""Waiting in a fair queue."""

import asyncio

import pytest

from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.fair_queue import FairQueue, Slot


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_work_waits_for_a_slot() -> None:
    queue = FairQueue(1, 1, most_waiting=5)
    first = await queue.take("a")
    second = asyncio.create_task(queue.take("b"))
    with first:
        await settle()
        assert (queue.working, queue.waiting, second.done()) == (1, 1, False)
    with await second:
        assert (queue.working, queue.waiting) == (1, 0)
    assert queue.working == 0


async def test_a_slot_is_free_after_its_work_however_that_ends() -> None:
    queue = FairQueue(1, 1, most_waiting=5)
    with pytest.raises(ValueError, match="failed"), await queue.take("a"):
        raise ValueError("failed")
    assert queue.working == 0


async def test_who_leaves_does_not_wait() -> None:
    queue = FairQueue(1, 1, most_waiting=1)
    first = await queue.take("a")
    leaving = asyncio.create_task(queue.take("a"))
    await settle()
    with pytest.raises(RateLimitedError):
        await queue.take("a")
    leaving.cancel()
    await settle()
    assert queue.waiting == 0
    staying = asyncio.create_task(queue.take("a"))
    with first:
        await settle()
    with await staying:
        pass
    assert (queue.working, queue.waiting) == (0, 0)


@pytest.mark.parametrize("granted_first", [True, False])
async def test_leaving_at_the_moment_of_the_slot_loses_nothing(granted_first: bool) -> None:
    queue = FairQueue(1, 1, most_waiting=5)
    first = await queue.take("a")
    leaving: asyncio.Task[Slot] = asyncio.create_task(queue.take("b"))
    staying = asyncio.create_task(queue.take("c"))
    await settle()
    if not granted_first:
        leaving.cancel()
    with first:
        pass
    if granted_first:
        leaving.cancel()
    with await staying:
        assert leaving.cancelled()
        assert queue.working == 1
    assert (queue.working, queue.waiting) == (0, 0)
