"""Calls that may hang in the kernel, kept away from the event loop and from its end."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def bounded(function: Callable[[], T], seconds: float) -> T:
    """What `function` returns from a thread of its own, within that time.

    A thread that hangs is left behind; it keeps neither the loop nor the process from ending.
    Raises: TimeoutError, and what `function` raises.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            failed = error
        try:
            loop.call_soon_threadsafe(settle, result, failed)
        except RuntimeError:
            return  # the loop has ended: nobody waits any more

    threading.Thread(target=run, name="bounded", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await outcome


async def within(work: Awaitable[T], seconds: float, late: T) -> T:
    """The result of `work`, or `late` when it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        return late
