"""Keeps calls of one kind from taking all threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Lane:
    """At most `most` calls at a time; the others wait for as long as calls end.

    A call keeps its place until its thread is free again, even if its caller has given up.
    """

    def __init__(self, most: int, seconds: float) -> None:
        """`seconds` is the longest time between two ends that callers wait for."""
        self._free = asyncio.Semaphore(most)
        self._seconds = seconds
        self._ended = 0

    async def begin(self, submit: Callable[[], Future[T]]) -> Future[T]:
        """Submits the call once there is a place for it.

        Raises: TimeoutError if no call has ended for too long; the errors of `submit`.
        """
        await self._wait()
        try:
            call = submit()
        except BaseException:
            self._leave()
            raise
        loop = asyncio.get_running_loop()

        def ended(_call: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._leave)

        call.add_done_callback(ended)
        return call

    def _leave(self) -> None:
        self._ended += 1
        self._free.release()

    async def _wait(self) -> None:
        while True:
            ended = self._ended
            try:
                async with asyncio.timeout(self._seconds):
                    await self._free.acquire()
                    return
            except TimeoutError:
                if self._ended == ended:
                    raise
