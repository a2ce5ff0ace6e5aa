"""When each key was used last, and the scopes of keys that are removed; both survive a restart.

A use is written at most once a minute per key, so that it costs requests nothing.
"""

import json
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime

from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import executing
from orchestrator.ground.task_scope import TaskScope
from orchestrator.rules.access.keys import KeyRing, Principal

_EVERY_SECONDS = 60
_USED = (
    "INSERT INTO known_keys (name, used_at) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET used_at = excluded.used_at"
)
_SCOPED = (
    "INSERT INTO known_keys (name, scopes) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET scopes = excluded.scopes"
)


class LastUses:
    """The uses of this instance's keys. Call `load` before the first request, then `close`."""

    def __init__(
        self, database: Database, keys: KeyRing, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._keys = keys
        self._clock = clock
        # By key: the last use, and the one that was written last; unix seconds.
        self._last: dict[str, int] = {}
        self._written: dict[str, int] = {}
        # The scopes as they are stored.
        self._scopes: dict[str, str | None] = {}
        self._writes = TaskScope("writing down the use of a key")
        self._ignore: Callable[[], None] = lambda: None

    async def load(self) -> None:
        """Reads what an earlier run wrote, and follows the keys. Raises: StoreError."""
        rows = await self._database.read(
            lambda db: db.execute("SELECT name, used_at, scopes FROM known_keys").fetchall()
        )
        for name, used_at, scopes in rows:
            if used_at is not None:
                self._last[name] = self._written[name] = used_at
            self._scopes[name] = scopes
            if scopes is not None:
                self._keys.remember(name, frozenset(json.loads(scopes)))
        await self._keep_scopes()
        self._keys.on_use = self._used
        self._ignore = self._keys.on_change(self._changed)

    def of(self, name: str) -> datetime | None:
        """When the key with that name was used last, in UTC."""
        found = self._last.get(name)
        return None if found is None else datetime.fromtimestamp(found, UTC)

    async def close(self) -> None:
        """Writes nothing more."""
        self._ignore()
        self._keys.on_use = None
        await self._writes.drain()

    def _used(self, principal: Principal) -> None:
        name, moment = principal.name, int(self._clock())
        self._last[name] = moment
        if abs(moment - self._written.get(name, 0)) >= _EVERY_SECONDS:
            self._written[name] = moment
            self._writes.spawn(self._database.write(executing(_USED, (name, moment))))

    def _changed(self) -> None:
        self._writes.spawn(self._keep_scopes())

    async def _keep_scopes(self) -> None:
        """Stores the scopes that have changed; those of removed keys stay. Raises: StoreError."""
        found = {
            key.name: None if key.scopes is None else json.dumps(sorted(key.scopes))
            for key in self._keys.all
        }
        changed = [each for each in found.items() if self._scopes.get(each[0]) != each[1]]
        if not changed:
            return

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(_SCOPED, changed)

        await self._database.write(write)
        self._scopes.update(changed)
