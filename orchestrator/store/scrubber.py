"""Has deleted values removed from the database's files, soon after they were deleted."""

import asyncio
import logging

from orchestrator.store.database import Database, StoreError
from orchestrator.tasks import Rounds, Supervised, TaskName, Tasks

log = logging.getLogger(__name__)

# A reader that is at work when it is tried has finished by then.
_AGAIN_SECONDS = 1.0
_ROUND_SECONDS = 60.0


class Scrubber:
    """Works in the background, from `start` to `close`. A failure is logged, and stops nothing."""

    def __init__(self, database: Database, tasks: Tasks) -> None:
        self._database = database
        self._tasks = tasks
        self._wanted = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    def start(self) -> None:
        """Begins; what an earlier control plane did not get to is done first."""
        self._wanted.set()
        self._task = self._tasks.start(TaskName.SCRUBBER, self._run, rounds=self._rounds)

    def want(self) -> None:
        """Something was deleted that may be nowhere any more; returns at once."""
        self._wanted.set()

    async def close(self) -> None:
        """Stops."""
        if self._task is not None:
            await self._task.close()

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                with self._rounds.round():
                    done = await self._database.scrub()
            except StoreError as error:
                log.warning("deleted values may still be in the database's files: %s", error)
                continue
            except BaseException:
                self._wanted.set()  # for the next start
                raise
            if not done:
                await asyncio.sleep(_AGAIN_SECONDS)
                self._wanted.set()
