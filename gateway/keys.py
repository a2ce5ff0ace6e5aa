"""The cluster's keys, for what a gateway answers itself, and to count new sessions by owner."""

import asyncio
import logging
import time
from collections.abc import Callable

from orchestrator.cluster.listening import LOOK_SECONDS, look_at_news
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.key_table import CHANNEL, principals, read
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.rules.access.keys import KeyRing

# Before the database is asked again that has not answered.
_PAUSE_SECONDS = 2.0
# As long as a node believes its last good copy.
_VALID_SECONDS = 900.0

log = logging.getLogger(__name__)


class FollowedKeys:
    """Keeps a ring of keys as the database has them; without the database, for a while."""

    def __init__(
        self,
        database: ClusterDatabase,
        clock: Callable[[], float] = time.monotonic,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`look_seconds` is how often the database is asked without news."""
        self.ring = KeyRing({})
        self._database = database
        self._clock = clock
        self._look = look_seconds
        self._version: int | None = None
        self._read_at = clock()

    async def follow(self) -> None:
        """Takes each change as the database tells of it, until it is cancelled."""
        while True:
            try:
                await look_at_news(self._database, CHANNEL, self._read, self._look)
            except ClusterUnavailableError as error:
                self._lose(error)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def refresh(self) -> None:
        """Asks once."""
        try:
            self._take(*await self._database.transaction(read))
        except ClusterUnavailableError as error:
            self._lose(error)

    async def _read(self, connection: DatabaseConnection) -> None:
        self._take(*await read(connection))

    def _take(self, version: int, entries: dict[str, str]) -> None:
        self._read_at = self._clock()
        if version != self._version:
            self._version = version
            self.ring.replace(KeyRing(principals(entries)))
        else:
            self.ring.announce()  # somebody's sign-in may have been ended

    def _lose(self, error: ClusterUnavailableError) -> None:
        if self._version is not None and self._clock() - self._read_at > _VALID_SECONDS:
            log.error("keys are not valid any more: %s", error.detail)
            self._version = None
            self.ring.replace(KeyRing({}))
