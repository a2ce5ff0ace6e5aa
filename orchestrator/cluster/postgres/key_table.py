"""The API keys of the cluster: rows with the members of a `[[keys]]` table, by digest."""

import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.rules.access.admin_key import new_key
from orchestrator.rules.access.key_entries import KeyEntry, table
from orchestrator.rules.access.key_rotation import rotated
from orchestrator.rules.access.keys import Principal, digest

log = logging.getLogger(__name__)

# Changes are told by this channel; its messages have no content.
CHANNEL = "paddock_keys"
_TAKE = (
    "INSERT INTO keys (name, sha256, entry) VALUES ($1, $2, $3)"
    " ON CONFLICT DO NOTHING RETURNING true"
)


def entry_of(key: Principal, sha256: str) -> str:
    """The key's entry as JSON."""
    members = table(key, sha256)
    moments = {n: at.isoformat() for n, at in members.items() if isinstance(at, datetime)}
    return json.dumps(members | moments)


def principals(entries: Mapping[str, str]) -> dict[str, Principal]:
    """The keys of these entries, by digest.

    One that this version can't read, such as one with a limit of a later version, is left out: it
    is refused, and the others work.
    """
    found = {}
    for sha256, text in entries.items():
        try:
            entry = KeyEntry.model_validate_json(text)
        except ValidationError as error:
            reasons = error.errors(include_url=False, include_input=False, include_context=False)
            where = ".".join(map(str, reasons[0]["loc"]))
            log.error("a key of the cluster is refused: its entry has a wrong %s", where or "form")
            continue
        if entry.sha256 == sha256:
            found[sha256] = entry.principal()
    return found


async def read(connection: DatabaseConnection) -> tuple[int, dict[str, str]]:
    """The version of the keys, and their entries by digest."""
    rows = await connection.fetch(
        "SELECT k.sha256, k.entry, c.keys_version AS version"
        " FROM cluster c LEFT JOIN keys k ON true"
    )
    entries = {row["sha256"]: row["entry"] for row in rows if row["sha256"] is not None}
    return rows[0]["version"], entries


class KeyTable:
    """Edits the keys; all nodes and gateways use them at once."""

    def __init__(self, database: ClusterDatabase) -> None:
        self._database = database

    async def list(self) -> list[Principal]:
        """All keys by name. Raises: ClusterUnavailableError."""
        _, entries = await self._database.transaction(read)
        return sorted(principals(entries).values(), key=lambda key: key.name)

    async def check(self, key: Principal) -> None:
        """Raises: ConflictError if the name is taken; ClusterUnavailableError."""

        async def work(connection: DatabaseConnection) -> Any:
            return await connection.fetchval("SELECT true FROM keys WHERE name = $1", key.name)

        if await self._database.transaction(work):
            raise ConflictError(_taken(key.name))

    async def add(self, key: Principal) -> str:
        """Adds a key and returns its secret, which is stored nowhere.

        Raises: ConflictError if the name is taken; ClusterUnavailableError.
        """
        secret = new_key()
        sha256 = digest(secret)

        async def work(connection: DatabaseConnection) -> Any:
            return await connection.fetchval(_TAKE, key.name, sha256, entry_of(key, sha256))

        if not await self._database.transaction(work):
            raise ConflictError(_taken(key.name))
        return secret

    async def take(self, keys: Mapping[str, Principal]) -> tuple[set[str], dict[str, str]]:
        """Adds the keys, by digest, of which no other has the name.

        Returns the names of those that are new, and the digests of all keys by name. Raises:
        ClusterUnavailableError.
        """

        async def work(connection: DatabaseConnection) -> tuple[set[str], dict[str, str]]:
            new = set()
            for sha256, key in keys.items():
                row = (key.name, sha256, entry_of(key, sha256))
                if await connection.fetchval(_TAKE, *row):
                    new.add(key.name)
            rows = await connection.fetch("SELECT name, sha256 FROM keys")
            return new, {row["name"]: row["sha256"] for row in rows}

        return await self._database.transaction(work)

    async def rotate(self, name: str, overlap: timedelta) -> str:
        """Gives a key another secret and returns it; the one so far is valid for the overlap.

        Raises: NotFoundError; ConflictError if an earlier rotation has not ended, or this version
        can't read the key; ClusterUnavailableError.
        """
        secret = new_key()
        sha256 = digest(secret)

        async def work(connection: DatabaseConnection) -> None:
            row = await connection.fetchrow(
                "SELECT sha256, entry FROM keys WHERE name = $1 FOR UPDATE", name
            )
            if row is None:
                raise NotFoundError(f"the cluster has no key {name!r}")
            known = principals({row["sha256"]: row["entry"]}).get(row["sha256"])
            if known is None:
                raise ConflictError(f"the entry of {name} can't be read by this version")
            new = rotated(known, row["sha256"], overlap)
            await connection.fetchval(
                "UPDATE keys SET sha256 = $2, entry = $3 WHERE name = $1 RETURNING true",
                *(name, sha256, entry_of(new, sha256)),
            )

        await self._database.transaction(work)
        return secret

    async def remove(self, name: str) -> None:
        """Removes a key, which is refused from then on.

        Raises: NotFoundError, ClusterUnavailableError.
        """

        async def work(connection: DatabaseConnection) -> Any:
            return await connection.fetchval(
                "DELETE FROM keys WHERE name = $1 RETURNING true", name
            )

        if not await self._database.transaction(work):
            raise NotFoundError(f"the cluster has no key {name!r}")


def _taken(name: str) -> str:
    return f"the name {name!r} is taken by another key of the cluster: choose another"
