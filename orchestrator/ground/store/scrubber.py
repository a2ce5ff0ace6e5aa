"""Removes deleted values from the database's files, soon after their deletion."""

import asyncio
import logging

from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks

log = logging.getLogger(__name__)

# After this time, a reader that prevented the first attempt has finished.
_AGAIN_SECONDS = 1.0
_ROUND_SECONDS = 60.0


class Scrubber:
    """Works in the background from `start` to `close`. A failure is logged and stops nothing."""

    def __init__(self, database: Database, tasks: Tasks) -> None:
        self._database = database
        self._tasks = tasks
        self._wanted = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    def start(self) -> None:
        """Begins with what an earlier control plane left undone."""
        self._wanted.set()
        self._task = self._tasks.start(TaskName.SCRUBBER, self._run, rounds=self._rounds)

    def want(self) -> None:
        """Requests a scrub after a deletion of confidential values; returns at once."""
        self._wanted.set()

    async def close(self) -> None:
        """Stops the work."""
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
