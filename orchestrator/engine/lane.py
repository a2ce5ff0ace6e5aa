"""Keeps calls of one kind from taking all threads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lane:
    """At most `most` calls at a time; the others wait for as long as calls end."""

    def __init__(self, most: int, seconds: float) -> None:
        """`seconds` is the longest time between two ends that callers wait for."""
        self._free = asyncio.Semaphore(most)
        self._seconds = seconds
        self._ended = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Raises: TimeoutError if no call has ended for too long."""
        await self._wait()
        try:
            yield
        finally:
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
