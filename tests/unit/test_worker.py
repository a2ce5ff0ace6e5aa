"""One thread for the database: its calls run in order, and nobody waits for a call in vain."""

import asyncio
import threading

import pytest

from orchestrator.ground.store.database import Worker


async def test_calls_run_in_their_order_in_one_thread() -> None:
    worker = Worker("turns")
    seen: list[int] = []

    def note(number: int) -> int:
        seen.append(number)
        return threading.get_ident()

    calls = [worker.run(lambda number=number: note(number)) for number in range(5)]  # type: ignore[misc]
    threads = await asyncio.gather(*calls)
    worker.stop()
    assert seen == [0, 1, 2, 3, 4]
    assert len(set(threads)) == 1
    assert threading.get_ident() not in threads


async def test_an_error_reaches_its_caller_only() -> None:
    worker = Worker("errors")
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 7) == 7
    worker.stop()


async def test_a_call_that_is_cancelled_before_its_turn_has_no_effect() -> None:
    worker = Worker("cancelled")
    turn, seen = threading.Event(), []
    first = asyncio.ensure_future(worker.run(turn.wait))
    second = asyncio.ensure_future(worker.run(lambda: seen.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    turn.set()
    assert await first
    assert await worker.run(lambda: "third") == "third"
    assert seen == []
    worker.stop()


async def test_calls_before_the_stop_are_finished_and_later_ones_refused() -> None:
    worker = Worker("stopped")
    last = asyncio.ensure_future(worker.run(lambda: "last"))
    await asyncio.sleep(0)
    worker.stop()
    assert await last == "last"
    with pytest.raises(RuntimeError, match="stopped was stopped"):
        await worker.run(lambda: "never")
