"""How long the event loop did one thing, and what that was."""

import asyncio
import selectors
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orchestrator.ground import loop_lag
from orchestrator.ground.check import CheckStatus
from orchestrator.ground.loop_lag import OTHER, SLOW_SECONDS, LoopLag, watched_loop
from orchestrator.operate.checks.loop import loop_check


def work(seconds: float) -> None:
    """Keeps the thread for that time."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def run(lag: LoopLag, main: Callable[[], Awaitable[Any]]) -> Any:
    async def ran() -> Any:
        return await main()

    with asyncio.Runner(loop_factory=lambda: watched_loop(lag)) as runner:
        return runner.run(ran())


def test_the_longest_step_of_an_operation_is_named() -> None:
    lag = LoopLag()

    async def busy() -> str:
        await asyncio.sleep(0)
        work(2 * SLOW_SECONDS)
        await asyncio.sleep(0)
        return "done"

    async def main() -> str:
        await asyncio.sleep(0)
        return await lag.measured("GET /busy", busy())

    assert run(lag, main) == "done"
    worst = lag.worst()
    assert worst is not None
    assert worst.seconds >= 2 * SLOW_SECONDS
    assert worst.operation == "GET /busy"
    assert lag.slow_passes >= 1


def test_what_no_operation_did_is_other_work() -> None:
    lag = LoopLag()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(work, 2 * SLOW_SECONDS)
        await asyncio.sleep(0)
        await lag.measured("GET /short", asyncio.sleep(0))

    run(lag, main)
    worst = lag.worst()
    assert worst is not None
    assert worst.operation == OTHER


def test_a_loop_that_always_has_more_to_do_still_looks_at_the_kernel() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            received = asyncio.ensure_future(loop.sock_recv(ours, 1))

            def leave_something() -> None:
                if not received.done():
                    loop.call_soon(leave_something)

            leave_something()
            await asyncio.sleep(0)
            theirs.send(b"x")
            assert await received == b"x"

    run(LoopLag(), main)


def test_few_passes_look_at_the_kernel_while_there_is_more_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = list[float | None]()
    select = selectors.DefaultSelector.select

    def counted(selector: Any, timeout: float | None = None) -> Any:
        looks.append(timeout)
        return select(selector, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", counted)
    monkeypatch.setattr(loop_lag, "_LOOK_SECONDS", 3600.0)
    passes = 50

    async def main() -> None:
        for _ in range(passes):
            await asyncio.sleep(0)
        looks.clear()
        for _ in range(passes):
            await asyncio.sleep(0)
        assert looks == []
        await asyncio.sleep(0.001)  # what waits always looks
        assert looks

    run(LoopLag(), main)


async def test_errors_and_cancellations_pass_through() -> None:
    lag = LoopLag()
    seen: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("x")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    with pytest.raises(ValueError, match="x"):
        await lag.measured("a", fails())

    async def waiting() -> None:
        await lag.measured("b", waits())

    task = asyncio.create_task(waiting())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled", "cleaned up"]


def test_it_is_of_the_last_hour() -> None:
    lag = LoopLag(lambda: now)
    now = 1000.0
    lag.passed(now, 3.0)
    now += 1800
    lag.passed(now, 0.5)
    assert [each.seconds for each in (lag.worst(), lag.worst(2)) if each] == [3.0, 0.5]
    now += 1860
    assert [each.seconds for each in (lag.worst(),) if each] == [0.5]
    now += 3600
    assert lag.worst() is None
    lag.passed(now, 0.1)
    assert [each.seconds for each in (lag.worst(),) if each] == [0.1]
    lag.forget()
    assert lag.worst() is None


def test_a_long_one_is_a_warning_that_names_the_operation() -> None:
    lag = LoopLag(lambda: 0.0)
    assert loop_check(lag.worst()).status is CheckStatus.OK
    lag.longest_step, lag.operation = 4.0, "POST /x"
    lag.passed(0.0, 4.1)
    check = loop_check(lag.worst())
    assert check.status is CheckStatus.WARNING
    assert "4100 ms: POST /x" in check.detail
