"""Threads for calls that would hold the event loop: they may hang in the kernel, or work long.

No thread delays the end of the process.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from orchestrator.ground.errors import CapacityExhaustedError

T = TypeVar("T")


class ThreadsBusyError(TimeoutError):
    """All threads of this kind are in calls that have not returned."""


class LeftBehindError(TimeoutError):
    """An earlier call for the same key has not returned."""


class Threads:
    """Threads for slow calls of one kind: one per call, and no more than `most` at a time.

    A thread that hangs is abandoned, and counts until it returns. It blocks neither the event loop
    nor the end of the process.
    """

    def __init__(self, kind: str, most: int) -> None:
        """`kind` names the calls in errors."""
        self._kind = kind
        self._most = most
        self._free = asyncio.Semaphore(most)

    async def call(self, function: Callable[[], T], seconds: float) -> T:
        """Returns the result of `function` within that time, including the wait for a free thread.

        Raises: ThreadsBusyError, TimeoutError, and the errors of `function`.
        """
        until = asyncio.get_running_loop().time() + seconds
        outcome = await self.begin(function, seconds)
        async with asyncio.timeout_at(until):
            return await asyncio.shield(outcome)

    async def begin(self, function: Callable[[], T], seconds: float) -> asyncio.Future[T]:
        """Starts the call once a thread is free; returns its future outcome.

        Cancelling the outcome would lose count of the thread, so await it behind a shield. Raises:
        ThreadsBusyError if none is free within that time.
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
        # Retrieved here, because the caller may be gone.
        if not outcome.cancelled():
            outcome.exception()


class KeyedThreads:
    """Threads for calls by key: while a key's call is overdue, the key gets no other thread.

    Its calls would conflict, or take all threads.
    """

    def __init__(self, kind: str, most: int) -> None:
        self._threads = Threads(kind, most)
        self._left: set[str] = set()

    async def call(self, key: str, function: Callable[[], T], seconds: float) -> T:
        """Returns the result of `function` within that time.

        Raises: LeftBehindError, ThreadsBusyError, TimeoutError, and the errors of `function`.
        """
        if key in self._left:
            raise LeftBehindError("an earlier call that took too long is still at work")
        outcome = await self._threads.begin(function, seconds)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(outcome)
        finally:
            if not outcome.done():
                self._left.add(key)
                outcome.add_done_callback(lambda _: self._left.discard(key))


def _start(function: Callable[[], T]) -> asyncio.Future[T]:
    """The outcome of the function, which runs in its own thread."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    work = partial(settle_with, outcome, function)
    threading.Thread(target=work, name="bounded", daemon=True).start()
    return outcome


def settle_with(outcome: asyncio.Future[T], function: Callable[[], T]) -> None:
    """Calls `function` in this thread, and gives its result or error to the loop's `outcome`."""
    result, failed = None, None
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
        failed = error
    with suppress(RuntimeError):  # the loop has ended, so nobody waits any more
        outcome.get_loop().call_soon_threadsafe(_settle, outcome, result, failed)


def _settle(outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)


async def bounded(function: Callable[[], T], seconds: float) -> T:
    """Returns the result of `function` from its own thread, within that time.

    For rare calls only, because abandoned threads are not counted. Raises: TimeoutError, and the
    errors of `function`.
    """
    return await Threads("one call", 1).call(function, seconds)


async def within(work: Awaitable[T], seconds: float, late: T) -> T:
    """The result of `work`, or `late` if it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        return late


# Work on at most so many bytes takes a few milliseconds.
AT_ONCE_BYTES = 16 * 1024
# More threads would only share the interpreter, and each delays the event loop by one switch.
_MOST = 2
_SECONDS = 30.0
_RETRY_SECONDS = 5


class Aside:
    """Does short work at once and long work in a thread, where the event loop interrupts it.

    Only for work that consists of many short steps: a thread can't be interrupted within one.
    """

    def __init__(self) -> None:
        self._threads = Threads("long requests", _MOST)

    async def call(self, size: int, function: Callable[[], T]) -> T:
        """The result of `function`, whose work grows with `size`, in bytes.

        Raises: CapacityExhaustedError if it takes too long; the errors of `function`.
        """
        if size <= AT_ONCE_BYTES:
            return function()
        try:
            return await self._threads.call(function, _SECONDS)
        except TimeoutError:
            raise CapacityExhaustedError(
                "too many long requests are being read: try again", retry_after=_RETRY_SECONDS
            ) from None
