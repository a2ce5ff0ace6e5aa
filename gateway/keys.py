"""The cluster's keys, for what a gateway answers itself, and to count new sessions by owner."""

import asyncio
import logging
import time
from collections.abc import Callable

from orchestrator.cluster.postgres.key_table import principals, read
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.rules.access.keys import KeyRing

_EVERY_SECONDS = 2.0
# As long as a node believes its last good copy.
_VALID_SECONDS = 900.0

log = logging.getLogger(__name__)


class FollowedKeys:
    """Keeps a ring of keys as the database has them; without the database, for a while."""

    def __init__(
        self, database: ClusterDatabase, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.ring = KeyRing({})
        self._database = database
        self._clock = clock
        self._version: int | None = None
        self._read_at = clock()

    async def follow(self) -> None:
        """Asks again and again, until it is cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(_EVERY_SECONDS)

    async def refresh(self) -> None:
        """Asks once."""
        try:
            version, entries = await self._database.transaction(read)
        except ClusterUnavailableError as error:
            if self._version is not None and self._clock() - self._read_at > _VALID_SECONDS:
                log.error("keys are not valid any more: %s", error.detail)
                self._version = None
                self.ring.replace(KeyRing({}))
            return
        self._read_at = self._clock()
        if version != self._version:
            self._version = version
            self.ring.replace(KeyRing(principals(entries)))
