"""All exports of the configuration, each with a task of its own, so that none delays another."""

from collections.abc import Sequence

from orchestrator.ground.tasks import Supervised, TaskName, Tasks
from orchestrator.operate.exports.export import Export


class Exports:
    """Sends from `start` to `close`; the next start goes on."""

    def __init__(self, each: Sequence[Export]) -> None:
        self.each = each
        self._tasks: list[Supervised] = []

    async def start(self, tasks: Tasks) -> None:
        """Begins. Raises: StoreError."""
        for export in self.each:
            # Now, so that nothing is archived that was not sent, even if a task is slow to begin.
            await export.find_position()
        for export in self.each:
            task = tasks.start(TaskName.EXPORTS, export.run, rounds=export.rounds)
            self._tasks.append(task)

    async def close(self) -> None:
        """Stops."""
        for task in self._tasks:
            await task.close()
        for export in self.each:
            await export.close()
