"""What hangs in a thread holds up nobody."""

import asyncio
import threading

import pytest

from orchestrator.threads import bounded, within


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
    seen[0].join(10)
    assert not seen[0].is_alive()


async def test_within() -> None:
    assert await within(asyncio.sleep(0, "done"), 10, "late") == "done"
    assert await within(asyncio.Event().wait(), 0.01, False) is False
