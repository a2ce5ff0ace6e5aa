"""Calls that may hang in the kernel, kept away from the event loop and from its end."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class ThreadsBusyError(TimeoutError):
    """All threads of their kind are in calls that have not come back."""


class LeftBehindError(TimeoutError):
    """An earlier call for the same key has not come back."""


class Threads:
    """Threads for slow calls of one kind: one for each call, and no more than `most` at once.

    One that hangs is left behind, and counts until it comes back; it keeps neither the loop nor
    the process from ending.
    """

    def __init__(self, kind: str, most: int) -> None:
        """`kind` names the calls in errors."""
        self._kind = kind
        self._most = most
        self._free = asyncio.Semaphore(most)

    async def call(self, function: Callable[[], T], seconds: float) -> T:
        """What `function` returns, within that time; the wait for a free thread counts.

        Raises: ThreadsBusyError, TimeoutError, and what `function` raises.
        """
        until = asyncio.get_running_loop().time() + seconds
        outcome = await self.begin(function, seconds)
        async with asyncio.timeout_at(until):
            return await asyncio.shield(outcome)

    async def begin(self, function: Callable[[], T], seconds: float) -> asyncio.Future[T]:
        """Starts the call once a thread is free: its outcome, whenever it comes.

        To cancel the outcome would lose count of the thread: await it behind a shield.
        Raises: ThreadsBusyError when none is free within that time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError:
            detail = f"all {self._most} threads for {self._kind} are taken by calls that hang"
            raise ThreadsBusyError(detail) from None
        try:
            outcome = _start(function)
        except BaseException:
            self._free.release()
            raise
        outcome.add_done_callback(self._came_back)
        return outcome

    def _came_back(self, outcome: asyncio.Future[T]) -> None:
        self._free.release()
        # Looked at: whoever waited may have left.
        if not outcome.cancelled():
            outcome.exception()


class KeyedThreads:
    """Threads for calls that work on somebody's things: while one of them is left behind, there
    is no other for its key. They would be in each other's way, or take all threads.
    """

    def __init__(self, kind: str, most: int) -> None:
        self._threads = Threads(kind, most)
        self._left: set[str] = set()

    async def call(self, key: str, function: Callable[[], T], seconds: float) -> T:
        """What `function` returns, within that time.

        Raises: LeftBehindError, ThreadsBusyError, TimeoutError, and what `function` raises.
        """
        if key in self._left:
            raise LeftBehindError("what took too long before is still at work")
        outcome = await self._threads.begin(function, seconds)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(outcome)
        finally:
            if not outcome.done():
                self._left.add(key)
                outcome.add_done_callback(lambda _: self._left.discard(key))


def _start(function: Callable[[], T]) -> asyncio.Future[T]:
    """The outcome of the function, which runs in a thread of its own."""
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
    return outcome


async def bounded(function: Callable[[], T], seconds: float) -> T:
    """What `function` returns from a thread of its own, within that time.

    For what is called a few times only: nothing counts the threads that are left behind.
    Raises: TimeoutError, and what `function` raises.
    """
    return await Threads("one call", 1).call(function, seconds)


async def within(work: Awaitable[T], seconds: float, late: T) -> T:
    """The result of `work`, or `late` when it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        return late
