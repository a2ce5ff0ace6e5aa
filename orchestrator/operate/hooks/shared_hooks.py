"""The hooks of a cluster: rows of its database, of which each node has a copy."""

import json
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from orchestrator.cluster.shared import CHANNEL, Connection, SharedDatabase, Write, on_record
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import executing
from orchestrator.operate.hooks import hook_rows
from orchestrator.operate.hooks.hook import Hook
from orchestrator.record.secrets.sealer import Sealer
from orchestrator.record.secrets.shared_seal import needed

_COLUMNS = "id, url, events, key, managed_by, set_by, created_at, sealed"
_READ = (
    "SELECT c.hooks_version AS version, h.id, h.url, h.events, h.key, h.managed_by, h.set_by,"
    " h.created_at, h.sealed FROM cluster c LEFT JOIN hooks h ON true ORDER BY h.created_at, h.id"
)
# A hook is added to those that were counted, by who has the cluster's key.
_NEXT = (
    "UPDATE cluster SET hooks_version = hooks_version + 1"
    " WHERE hooks_version = $1 AND seal_check = $2 RETURNING hooks_version"
)
_ADD = f"INSERT INTO hooks ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"  # noqa: S608 - ours
_REMOVE = (
    "WITH gone AS (DELETE FROM hooks WHERE id = $1 RETURNING true)"
    " UPDATE cluster SET hooks_version = hooks_version + 1"
    " WHERE EXISTS (SELECT FROM gone) RETURNING hooks_version"
)
# In portions, so that no statement takes long.
_CLEAR = (
    "WITH part AS (SELECT number FROM hook_deliveries d WHERE NOT EXISTS"
    " (SELECT FROM hooks h WHERE h.id = d.hook_id) LIMIT 1000),"
    " gone AS (DELETE FROM hook_deliveries d USING part WHERE d.number = part.number RETURNING 1)"
    " SELECT count(*) FROM gone"
)
_COPY = f"INSERT OR REPLACE INTO shared_hooks ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_TELL = f"NOTIFY {CHANNEL}"


class HookSnapshot(NamedTuple):
    """All of them as they were at a version."""

    version: int
    hooks: Sequence[Hook]


class SharedHooks:
    """Those that were added over the API; configured ones are each node's."""

    def __init__(
        self, database: SharedDatabase, own: Database, sealer: Sealer | None, node: str
    ) -> None:
        """`own` has the copy. `sealer` None: none can be added, and none sends."""
        self.database = database
        self.node = node
        self._own = own
        self._sealer = sealer
        self._known = -1

    async def copy(self) -> HookSnapshot:
        """What this node has of earlier runs. Raises: StoreError."""
        rows = await self._own.read(
            lambda each: each.execute(f"SELECT {_COLUMNS} FROM shared_hooks").fetchall()  # noqa: S608
        )
        return HookSnapshot(-1, [self._opened(*row) for row in rows])

    async def read(self) -> HookSnapshot:
        """What there is now. Raises: ClusterUnavailableError, StoreError."""
        return await self._kept(await self.database.transaction(_rows))

    def following(
        self, changed: Callable[[HookSnapshot], Awaitable[None]]
    ) -> Callable[[Connection], Awaitable[None]]:
        """What looks at a connection, and calls `changed` if they are others."""

        async def update(connection: Connection) -> None:
            version = await connection.fetchval("SELECT hooks_version FROM cluster")
            if version != self._known:
                await changed(await self._kept(await _rows(connection)))

        return update

    def check(self) -> None:
        """Raises: ConflictError if none can be added, because there is no key."""
        needed(self._sealer)

    async def add(self, known: int, hook: Hook, draft: EventDraft, write: Write) -> int:
        """Adds a hook, on record by `write`; returns the version then.

        Raises: ConflictError if there are others than at the version `known`, or no key;
        ClusterUnavailableError; the errors of `write`.
        """
        sealer = needed(self._sealer)
        assert hook.secret is not None  # noqa: S101 - it is new
        sealed = sealer.seal(hook.secret, hook_rows.bound(hook))
        row = (
            *(hook.id, hook.url, json.dumps(hook.events), hook.key, hook.managed_by),
            *(hook.set_by, hook.created_at, sealed),
        )

        async def work(connection: Connection) -> int:
            version: int | None = await connection.fetchval(_NEXT, known, sealer.check)
            if version is None:
                raise ConflictError("the cluster's hooks have just been changed: try again")
            await connection.execute(_ADD, *row)
            await connection.execute(_TELL)
            return version

        async with on_record(write, draft):
            version = await self.database.transaction(work)
        await self._own.write(executing(_COPY, row), reserve=True)
        return version

    async def remove(self, hook_id: str) -> int | None:
        """Removes it from the cluster; returns the version then. None: it was gone.

        Raises: ClusterUnavailableError.
        """

        async def work(connection: Connection) -> int | None:
            version: int | None = await connection.fetchval(_REMOVE, hook_id)
            await connection.execute(_TELL)
            return version

        version = await self.database.transaction(work)
        await self._own.write(
            executing("DELETE FROM shared_hooks WHERE id = ?", (hook_id,)), reserve=True
        )
        return version

    async def clear(self) -> None:
        """Removes the messages of hooks that are gone. Raises: ClusterUnavailableError."""

        async def part(connection: Connection) -> Any:
            return await connection.fetchval(_CLEAR)

        while await self.database.transaction(part):
            pass

    async def _kept(self, found: tuple[int, list[tuple[Any, ...]]]) -> HookSnapshot:
        version, rows = found
        await self._own.write(lambda connection: _copy(connection, rows), reserve=True)
        self._known = version
        return HookSnapshot(version, [self._opened(*row) for row in rows])

    def _opened(self, *columns: Any) -> Hook:
        *members, sealed = columns
        return hook_rows.opened(hook_rows.restored(*members), sealed, self._sealer)


async def take(connection: Connection, hook: Hook, sealed: bytes) -> bool:
    """Adds one of a machine that becomes a node unless it is there; returns whether it was not."""
    taken = await connection.fetchval(
        f"{_ADD} ON CONFLICT (id) DO NOTHING RETURNING true",
        *(hook.id, hook.url, json.dumps(hook.events), hook.key, hook.managed_by),
        *(hook.set_by, hook.created_at, sealed),
    )
    if taken:
        await connection.execute("UPDATE cluster SET hooks_version = hooks_version + 1")
        await connection.execute(_TELL)
    return bool(taken)


async def _rows(connection: Connection) -> tuple[int, list[tuple[Any, ...]]]:
    rows = [tuple(row.values()) for row in await connection.fetch(_READ)]
    return rows[0][0], [row[1:] for row in rows if row[1] is not None]


def _copy(connection: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> None:
    connection.execute("DELETE FROM shared_hooks")
    connection.executemany(_COPY, rows)
