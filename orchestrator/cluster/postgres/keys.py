"""The keys of the cluster on this node: from the database, or from the last good copy for a while.

Each change is told at once by the database. After the last contact, the copy is valid for some
time; then keys are refused, and only the handles of sessions work.
"""

import asyncio
import logging

from orchestrator.cluster.base import KeySource
from orchestrator.cluster.listening import LOOK_SECONDS, look_at_news
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.key_copy import KeyCopy
from orchestrator.cluster.postgres.key_table import CHANNEL, KeyTable, principals, read
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.ground.threads import Threads
from orchestrator.host.node.boot import boottime
from orchestrator.rules.access.keys import ADMIN_NAME, KeyRing, Principal

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 3.0
_DISK_SECONDS = 10.0
_ROUND_SECONDS = 60.0


class PostgresKeys:
    """A `KeySource` that also follows changes."""

    def __init__(
        self,
        database: ClusterDatabase,
        own: KeySource,
        copy: KeyCopy,
        valid_seconds: float,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`own` has this machine's admin key, which no other machine knows.

        `look_seconds` is how often the database is asked without news, and how often the copy is
        said to be good.
        """
        self.store = KeyTable(database)
        self._database = database
        self._own = own
        self._copy = copy
        self._valid = valid_seconds
        self._look = look_seconds
        self._threads = Threads("the copy of the cluster's keys", 1)
        self._rounds = Rounds(_ROUND_SECONDS)
        # Until when what was loaded is valid.
        self._until = float("-inf")
        self._task: Supervised | None = None

    async def load(self) -> KeyRing:
        """All keys; without a valid copy only this machine's admin key. Raises: ConfigError."""
        try:
            _, entries = await self._database.transaction(read)
        except ClusterUnavailableError as error:
            log.warning("the keys are those of the last good copy: %s", error.detail)
            return await self._ring(await self._kept())
        await self._keep(entries)
        return await self._ring(entries)

    def follow(self, keys: KeyRing, tasks: Tasks) -> None:
        """From now on, `keys` has what the cluster has."""

        async def work() -> None:
            while True:
                with self._rounds.round() as this:
                    try:
                        await self._follow(keys)
                    except ClusterUnavailableError as error:
                        this.failed = True
                        log.warning("changes of the cluster's keys are not heard: %s", error.detail)
                await self._wait_for_the_end(keys)

        self._task = tasks.start(TaskName.CLUSTER_KEYS, work)

    async def close(self) -> None:
        """Follows no more."""
        if self._task is not None:
            await self._task.close()

    async def _follow(self, keys: KeyRing) -> None:
        """Raises: ClusterUnavailableError when the database is away."""
        known: int | None = None

        async def look(connection: DatabaseConnection) -> None:
            nonlocal known
            known = await self._update(connection, keys, known)

        await look_at_news(self._database, CHANNEL, look, self._look)

    async def _update(
        self, connection: DatabaseConnection, keys: KeyRing, known: int | None
    ) -> int:
        """Puts the present keys into force, if they are others; returns their version."""
        version, entries = await read(connection)
        await self._keep(entries)
        if version != known:
            keys.replace(await self._ring(entries))
        return version

    async def _wait_for_the_end(self, keys: KeyRing) -> None:
        """Waits before the next try, or until the keys are not valid any more."""
        left = self._until - boottime()
        await asyncio.sleep(max(0.0, min(left, _PAUSE_SECONDS)) if left > 0 else _PAUSE_SECONDS)
        if self._until <= boottime() and any(key.name != ADMIN_NAME for key in keys.all):
            log.error(
                "the cluster's database has been away for %d s: keys are refused from now on, and"
                " handles of sessions work",
                round(self._valid),
            )
            keys.replace(await self._ring({}))

    async def _keep(self, entries: dict[str, str]) -> None:
        self._until = boottime() + self._valid
        try:
            await self._threads.call(lambda: self._copy.write(entries), _DISK_SECONDS)
        except (OSError, TimeoutError) as error:
            log.error("the copy of the cluster's keys can't be written: %s", error)

    async def _kept(self) -> dict[str, str]:
        """The entries of the copy; none if it is not valid."""
        try:
            found = await self._threads.call(self._copy.read, _DISK_SECONDS)
        except (OSError, ValueError, TimeoutError) as error:
            log.error("the copy of the cluster's keys can't be read: %s", error)
            return {}
        if found is None or found[0] >= self._valid:
            return {}
        age, entries = found
        self._until = boottime() + self._valid - age
        return entries

    async def _ring(self, entries: dict[str, str]) -> KeyRing:
        own = await self._own.load()
        admins: dict[str, Principal] = {
            key.sha256: key for key in own.all if key.name == ADMIN_NAME
        }
        return KeyRing({**principals(entries), **admins}, own.admin_key_file)
