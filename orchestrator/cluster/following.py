"""Follows what the cluster's database shares: told at each change, and looked at again at times."""

import logging
from collections.abc import Awaitable, Callable

from orchestrator.cluster.listening import LOOK_SECONDS, look_at_news
from orchestrator.cluster.repeating import Repeating
from orchestrator.cluster.shared import CHANNEL, Connection, SharedDatabase
from orchestrator.ground.tasks import TaskName, Tasks

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 3.0
_ROUND_SECONDS = 60.0

# Looks at what may have changed. Raises: errors of the database.
Update = Callable[[Connection], Awaitable[None]]


class Following:
    """One connection and one task for all that is followed. `add` comes before `start`."""

    def __init__(self, database: SharedDatabase, look_seconds: float = LOOK_SECONDS) -> None:
        """`look_seconds` is how often the database is asked without news."""
        self._database = database
        self._look = look_seconds
        self._updates: list[Update] = []
        self._repeating = Repeating(
            TaskName.SHARED, self._follow, _missed, pause=_PAUSE_SECONDS, overdue=_ROUND_SECONDS
        )

    def add(self, update: Update) -> None:
        """`update` is called when something may have changed."""
        self._updates.append(update)

    def start(self, tasks: Tasks) -> None:
        """Begins to follow."""
        self._repeating.start(tasks)

    async def close(self) -> None:
        """Follows no more."""
        await self._repeating.close()

    async def _follow(self) -> None:
        """Raises: ClusterUnavailableError when the database is away."""

        async def look(connection: Connection) -> None:
            for update in self._updates:
                await update(connection)

        await look_at_news(self._database, CHANNEL, look, self._look)


def _missed(why: str) -> None:
    log.warning("changes of what the cluster shares are not heard: %s", why)
