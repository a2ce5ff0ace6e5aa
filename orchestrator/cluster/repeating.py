"""Work that a node repeats for its cluster; while the database is away, a later round does it."""

import asyncio
from collections.abc import Awaitable, Callable

from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks


class Repeating:
    """Rounds of `work` with pauses between, by a supervised task."""

    def __init__(
        self,
        name: TaskName,
        work: Callable[[], Awaitable[None]],
        missed: Callable[[str], None],
        *,
        pause: float,
        overdue: float,
    ) -> None:
        """`missed` hears why a round failed. `pause` and `overdue`, of a round, are in seconds.

        `work` raises ClusterUnavailableError.
        """
        self._name = name
        self._work = work
        self._missed = missed
        self._pause = pause
        self._rounds = Rounds(overdue)
        self._task: Supervised | None = None

    def start(self, tasks: Tasks) -> None:
        """Begins."""
        self._task = tasks.start(self._name, self._run, rounds=self._rounds)

    async def close(self) -> None:
        """Stops."""
        if self._task is not None:
            await self._task.close()

    async def _run(self) -> None:
        while True:
            with self._rounds.round() as this:
                try:
                    await self._work()
                except ClusterUnavailableError as error:
                    this.failed = True
                    self._missed(error.detail)
            await asyncio.sleep(self._pause)
