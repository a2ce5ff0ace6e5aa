"""Tasks of an owner: none is lost, none fails unnoticed, and all end with it."""

import asyncio
import logging

import pytest

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.task_scope import TaskScope


async def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [RuntimeError("no"), ConflictError("no")])
async def test_a_failure_that_nobody_waits_for_is_logged(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    scope = TaskScope("the work of the test")
    scope.spawn(fail(error))
    await scope.drain()
    await asyncio.sleep(0)
    (record,) = caplog.records
    assert "the work of the test failed" in record.getMessage()
    assert (record.levelno == logging.ERROR) == (record.exc_info is not None)


async def test_what_is_shielded_goes_on_without_its_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scope, go_on, results = TaskScope("work"), asyncio.Event(), list[int]()

    async def work() -> int:
        await go_on.wait()
        return 5

    async def broken() -> None:
        await go_on.wait()
        raise RuntimeError("no")

    calls = [
        asyncio.create_task(scope.shield(work(), results.append)),
        asyncio.create_task(scope.shield(broken())),
    ]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert results == []
    go_on.set()
    await scope.drain()
    await asyncio.sleep(0)
    assert results == [5]
    assert "work failed" in caplog.text


async def test_who_waits_sees_the_failure_and_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scope = TaskScope("work")
    with pytest.raises(RuntimeError, match="no"):
        await scope.shield(fail(RuntimeError("no")))
    with pytest.raises(RuntimeError, match="no"):
        await scope.begin(fail(RuntimeError("no")))
    assert caplog.records == []


async def test_closing_ends_what_is_under_way() -> None:
    scope, ended = TaskScope("work"), list[str]()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    for _ in range(3):
        scope.spawn(wait())
    await asyncio.sleep(0)
    await scope.close()
    assert ended == ["ended"] * 3
    await scope.close()


async def test_a_first_step_is_done_at_once() -> None:
    scope, done = TaskScope("work"), []

    async def work(fails: bool = False) -> str:
        done.append("begun")
        if fails:
            raise ValueError("at once")
        await asyncio.sleep(0)
        done.append("ended")
        return "result"

    asyncio.get_running_loop().call_soon(done.append, "due before")
    task = scope.begin_now(work())
    assert done == ["begun"]
    assert await task == "result"
    assert done == ["begun", "due before", "ended"]
    with pytest.raises(ValueError, match="at once"):
        await scope.begin_now(work(fails=True))


async def test_what_has_begun_is_cancelled_as_any_task() -> None:
    scope, ended = TaskScope("work"), []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    scope.begin_now(wait())
    await scope.close()
    assert ended == ["ended"]
