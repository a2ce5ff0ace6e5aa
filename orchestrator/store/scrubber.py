"""Has deleted values removed from the database's files, soon after they were deleted."""

import asyncio
import logging

from orchestrator.store.database import Database, StoreError

log = logging.getLogger(__name__)

# A reader that is at work when it is tried has finished by then.
_AGAIN_SECONDS = 1.0


class Scrubber:
    """Works in the background, from `start` to `close`. A failure is logged, and stops nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins; what an earlier control plane did not get to is done first."""
        self._wanted.set()
        self._task = asyncio.create_task(self._run())

    def want(self) -> None:
        """Something was deleted that may be nowhere any more; returns at once."""
        self._wanted.set()

    async def close(self) -> None:
        """Stops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                done = await self._database.scrub()
            except StoreError as error:
                log.warning("deleted values may still be in the database's files: %s", error)
                continue
            if not done:
                await asyncio.sleep(_AGAIN_SECONDS)
                self._wanted.set()
