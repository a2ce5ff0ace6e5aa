"""The secrets of keys in a cluster: rows of its database, of which each node has a copy.

Sessions use what the node has, whether the database answers or not. A change needs the database.
"""

import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import SecretStr

from orchestrator.cluster.shared import CHANNEL, Connection, SharedDatabase, Write, on_record
from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import executing
from orchestrator.record.secrets.sealer import Sealer
from orchestrator.record.secrets.shared_seal import needed
from orchestrator.state import secret_rows
from orchestrator.state.secret import Holder, Secret

log = logging.getLogger(__name__)

_COLUMNS = "key, name, use, sealed, set_by, created_at, set_at"
# The version, and each secret; without secrets, one row of NULLs.
_READ = (
    "SELECT c.secrets_version AS version, s.key, s.name, s.use, s.sealed, s.set_by, s.created_at,"
    " s.set_at FROM cluster c LEFT JOIN secrets s ON true ORDER BY s.key, s.name"
)
# A change is made to what was looked at, by who has the cluster's key.
_NEXT = (
    "UPDATE cluster SET secrets_version = secrets_version + 1"
    " WHERE secrets_version = $1 AND seal_check = $2 RETURNING secrets_version"
)
_PUT = (
    f"INSERT INTO secrets ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)"  # noqa: S608 - ours
    " ON CONFLICT (key, name) DO UPDATE SET use = excluded.use, sealed = excluded.sealed,"
    " set_by = excluded.set_by, set_at = excluded.set_at"
)
_REMOVE = (
    "WITH gone AS (DELETE FROM secrets WHERE key = $1 AND name = $2 RETURNING true)"
    " UPDATE cluster SET secrets_version = secrets_version + 1"
    " WHERE EXISTS (SELECT FROM gone) RETURNING secrets_version"
)
# The node's copy, which must not bring back what was removed.
_COPY = f"INSERT OR REPLACE INTO shared_secrets ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_FORGET = "DELETE FROM shared_secrets WHERE key = ? AND name = ?"
_TELL = f"NOTIFY {CHANNEL}"


# A secret of a machine that becomes a node: what the cluster has stays.
_TAKE = (
    f"INSERT INTO secrets ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)"  # noqa: S608 - ours
    " ON CONFLICT (key, name) DO NOTHING RETURNING true"
)
_GROWN = "UPDATE cluster SET secrets_version = secrets_version + 1"


class Snapshot(NamedTuple):
    """All of them as they were at a version."""

    version: int
    secrets: Sequence[Secret]


class SharedSecrets:
    """Those of keys and of all keys; sessions' are with their sessions."""

    def __init__(self, database: SharedDatabase, own: Database, sealer: Sealer | None) -> None:
        """`own` has the copy. `sealer` None: nothing can be set or opened."""
        self._database = database
        self._own = own
        self._sealer = sealer
        self._known = -1

    async def copy(self) -> Snapshot:
        """What this node has of earlier runs. Raises: StoreError."""
        rows = await self._own.read(
            lambda each: each.execute(f"SELECT {_COLUMNS} FROM shared_secrets").fetchall()  # noqa: S608
        )
        return Snapshot(-1, [self._opened(*row) for row in rows])

    async def read(self) -> Snapshot:
        """What there is now. Raises: ClusterUnavailableError, StoreError."""
        return await self._kept(await self._database.transaction(_rows))

    def following(
        self, changed: Callable[[Snapshot], Awaitable[None]]
    ) -> Callable[[Connection], Awaitable[None]]:
        """What looks at a connection, and calls `changed` if they are others."""

        async def update(connection: Connection) -> None:
            version = await connection.fetchval("SELECT secrets_version FROM cluster")
            if version != self._known:
                await changed(await self._kept(await _rows(connection)))

        return update

    async def put(
        self, known: int, secret: Secret, value: SecretStr, draft: EventDraft, write: Write
    ) -> int:
        """Sets a secret, on record by `write`; returns the version then.

        Raises: ConflictError if there are others than at the version `known`, or no key to seal
        it; ClusterUnavailableError; the errors of `write`.
        """
        sealer = needed(self._sealer)
        sealed = sealer.seal(value, secret_rows.bound(secret))
        use = json.dumps(secret_rows.use_of(secret))
        row = (secret.holder.key, secret.name, use, sealed, secret.set_by)
        times = (secret.created_at, secret.set_at)

        async def work(connection: Connection) -> int:
            version: int | None = await connection.fetchval(_NEXT, known, sealer.check)
            if version is None:
                raise ConflictError("the cluster's secrets have just been changed: try again")
            await connection.execute(_PUT, *row, *times)
            await connection.execute(_TELL)
            return version

        async with on_record(write, draft):
            version = await self._database.transaction(work)
        await self._own.write(executing(_COPY, (*row, *times)), reserve=True)
        return version

    async def remove(self, secret: Secret) -> int:
        """Removes it from the cluster, and tells all nodes; returns the version then.

        Raises: NotFoundError, ClusterUnavailableError.
        """

        async def work(connection: Connection) -> int:
            version: int | None = await connection.fetchval(_REMOVE, secret.holder.key, secret.name)
            if version is None:
                raise NotFoundError(f"there is no secret {secret.name} that was set over the API")
            await connection.execute(_TELL)
            return version

        version = await self._database.transaction(work)
        await self._own.write(executing(_FORGET, (secret.holder.key, secret.name)), reserve=True)
        return version

    async def _kept(self, found: tuple[int, list[tuple[Any, ...]]]) -> Snapshot:
        """Writes the copy first: what is in force is there after the next start, too."""
        version, rows = found
        await self._own.write(lambda connection: _copy(connection, rows), reserve=True)
        self._known = version
        return Snapshot(version, [self._opened(*row) for row in rows])

    def _opened(self, key: str, name: str, use: str, sealed: bytes, *times: str) -> Secret:
        secret = secret_rows.restored(Holder(key), name, json.loads(use), *times)
        sealer = self._sealer
        value = None if sealer is None else sealer.open(sealed, secret_rows.bound(secret))
        if value is None:
            log.error("the value of the secret %s is lost: set it again", secret.name)
        return replace(secret, value=value)


async def take(connection: Connection, secret: Secret, sealed: bytes) -> bool:
    """Adds one unless the cluster has one of that name; returns whether it had none."""
    use = json.dumps(secret_rows.use_of(secret))
    row = (secret.holder.key, secret.name, use, sealed, secret.set_by)
    taken = await connection.fetchval(_TAKE, *row, secret.created_at, secret.set_at)
    if taken:
        await connection.execute(_GROWN)
        await connection.execute(_TELL)
    return bool(taken)


async def _rows(connection: Connection) -> tuple[int, list[tuple[Any, ...]]]:
    rows = [tuple(row.values()) for row in await connection.fetch(_READ)]
    return rows[0][0], [row[1:] for row in rows if row[1] is not None]


def _copy(connection: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> None:
    connection.execute("DELETE FROM shared_secrets")
    connection.executemany(_COPY, rows)
