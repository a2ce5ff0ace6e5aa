"""Work that outlives its client."""

import asyncio
import logging

import pytest

from api.shape.context import Work
from orchestrator.ground.errors import ConflictError


async def test_work_goes_on_when_its_client_leaves() -> None:
    work, release = Work(), asyncio.Event()
    results: list[int] = []

    async def slow() -> int:
        await release.wait()
        return 5

    client = asyncio.create_task(work.complete(slow(), results.append))
    await asyncio.sleep(0)
    client.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client
    release.set()
    await work.drain()
    assert results == [5]


async def test_results_and_errors_reach_a_client_that_waits() -> None:
    work = Work()
    abandoned: list[int] = []

    async def good() -> int:
        return 1

    async def bad() -> int:
        raise ConflictError("no")

    assert await work.complete(good(), abandoned.append) == 1
    with pytest.raises(ConflictError):
        await work.complete(bad(), abandoned.append)
    assert abandoned == []


async def test_failures_nobody_waits_for_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()

    async def bad() -> None:
        raise RuntimeError("unseen")

    with caplog.at_level(logging.ERROR):
        work.detach(bad())
        await work.drain()
        await asyncio.sleep(0)
    assert "unseen" in caplog.text


async def test_stop_ends_what_follows() -> None:
    work = Work()

    async def follow() -> None:
        work.follow()
        await asyncio.Event().wait()

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    work.stop()
    with pytest.raises(asyncio.CancelledError):
        await task
    late = asyncio.create_task(follow())
    with pytest.raises(asyncio.CancelledError):
        await late
    assert work.stopping
