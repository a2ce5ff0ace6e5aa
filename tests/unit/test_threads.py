"""A call that hangs in a thread delays nothing else."""

import asyncio
import threading

import pytest

from orchestrator.ground.threads import (
    KeyedThreads,
    LeftBehindError,
    Threads,
    ThreadsBusyError,
    bounded,
    within,
)
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until


async def test_results_and_errors_come_back() -> None:
    assert await bounded(lambda: 7, 10) == 7

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await bounded(fail, 10)


async def test_a_thread_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError):
        await bounded(release.wait, 0.01)
    release.set()


def test_a_loop_that_ended_is_no_trouble() -> None:
    release = threading.Event()
    seen: list[threading.Thread] = []

    def hang() -> None:
        seen.append(threading.current_thread())
        release.wait()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await bounded(hang, 0.05)

    asyncio.run(leave())
    release.set()
    seen[0].join(WAIT_SECONDS)
    assert not seen[0].is_alive()


async def test_within() -> None:
    assert await within(asyncio.sleep(0, "done"), 10, "late") == "done"
    assert await within(asyncio.Event().wait(), 0.01, False) is False


async def test_threads_are_no_more_than_they_may_be() -> None:
    threads, release = Threads("the test", 3), threading.Event()
    for _ in range(3):
        with pytest.raises(TimeoutError) as late:
            await threads.call(release.wait, 0.01)
        assert not isinstance(late.value, ThreadsBusyError)
    for _ in range(20):
        with pytest.raises(ThreadsBusyError, match="all 3 threads for the test are taken"):
            await threads.call(release.wait, 0.01)
    assert sum(thread.name == "bounded" for thread in threading.enumerate()) == 3
    release.set()
    # The threads return, and can be used again.
    assert await asyncio.gather(*(threads.call(lambda: 5, 10) for _ in range(50))) == [5] * 50


async def test_a_thread_whose_caller_left_counts_until_it_comes_back() -> None:
    threads, release = Threads("the test", 1), threading.Event()
    calling = asyncio.create_task(threads.call(release.wait, 10))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    with pytest.raises(ThreadsBusyError):
        await threads.call(lambda: 5, 0.01)
    release.set()
    assert await threads.call(lambda: 5, 10) == 5


async def test_a_failure_that_nobody_waits_for_gives_its_thread_back() -> None:
    threads, release = Threads("the test", 1), threading.Event()

    def fail() -> None:
        release.wait()
        raise ValueError("late")

    with pytest.raises(TimeoutError):
        await threads.call(fail, 0.01)
    release.set()
    assert await threads.call(lambda: 5, 10) == 5


async def test_while_a_call_is_left_behind_there_is_no_other_for_its_key() -> None:
    threads, release, calls = KeyedThreads("the test", 2), threading.Event(), list[str]()

    def hang() -> None:
        calls.append("hang")
        release.wait()

    with pytest.raises(TimeoutError):
        await threads.call("a", hang, 0.01)
    with pytest.raises(LeftBehindError):
        await threads.call("a", hang, 10)
    assert calls == ["hang"]
    assert await threads.call("b", lambda: 5, 10) == 5
    leaving = asyncio.create_task(threads.call("c", hang, 10))
    await until(lambda: calls == ["hang", "hang"])
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    with pytest.raises(LeftBehindError):
        await threads.call("c", hang, 10)
    release.set()
    await until(lambda: not threads._left)
    assert await threads.call("a", lambda: 5, 10) == 5
