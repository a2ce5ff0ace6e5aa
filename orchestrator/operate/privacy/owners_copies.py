"""What the cluster's database has of an owner's sessions: copied chains, lists, messages to hooks.

Each transaction changes a bounded portion, and locks rows in the order of their keys.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from orchestrator.cluster.shared import CHANNEL, Connection, SharedDatabase
from orchestrator.record.audit.recorded_event import full_event
from paddock.audit.chain import DIGEST, SALT, canonical, erased

# Of one transaction. To parse and to digest the events takes this process 5 to 10 ms.
_SESSIONS, _EVENTS, _BYTES = 50, 100, 64 * 1024
# `node` NULL: of all nodes.
_KEYS = """
SELECT session_key FROM records
WHERE owner = $1 AND ended_at IS NOT NULL AND ($2::text IS NULL OR node = $2) AND session_key > $3
ORDER BY session_key LIMIT $4
"""
_KEYS_OF_SILENT = """
SELECT session_key FROM records r WHERE owner = $1 AND session_key > $2 AND NOT EXISTS
    (SELECT FROM nodes n WHERE n.name = r.node AND n.state <> 'gone'
        AND n.until > clock_timestamp())
AND EXISTS (SELECT FROM shipped s WHERE s.session_key = r.session_key)
ORDER BY session_key LIMIT $3
"""
# At least one event, and then as many as the bytes allow.
_PORTION = """
SELECT seq, body, prev_hash, hash FROM shipped WHERE session_key = $1 AND seq > $2 AND seq <= (
    SELECT max(seq) FROM (
        SELECT seq, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
        FROM (SELECT seq, body FROM shipped WHERE session_key = $1 AND seq > $2
            ORDER BY seq LIMIT $3) AS part
    ) AS sized WHERE before < $4
) ORDER BY seq
"""
_ERASE = """
UPDATE shipped s SET body = n.body FROM unnest($2::bigint[], $3::text[]) AS n (seq, body)
WHERE s.session_key = $1 AND s.seq = n.seq
"""
_FORGET_LISTED = """
UPDATE records SET labels = '{}', work_id = NULL WHERE session_key = ANY($1::text[])
AND (labels <> '{}' OR work_id IS NOT NULL)
"""
# What a node that has not heard of the latest change did not remove.
_FORGET_OF_KEY = """
WITH s AS (DELETE FROM secrets WHERE key = $1 RETURNING 1),
    h AS (DELETE FROM hooks WHERE managed_by = $1 RETURNING 1)
UPDATE cluster SET secrets_version = secrets_version + (SELECT count(*) FROM s),
    hooks_version = hooks_version + (SELECT count(*) FROM h)
WHERE EXISTS (SELECT FROM s) OR EXISTS (SELECT FROM h)
"""


class _CopiedPortion(NamedTuple):
    """Up to where a copied chain was looked at; None: to its end."""

    last: int | None


class OwnersCopies:
    """Reads them and takes content away. Each method raises ClusterUnavailableError."""

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database

    async def forget_of_key(self, owner: str) -> None:
        """Removes what secrets and hooks of the key there still are."""

        async def work(connection: Connection) -> None:
            await connection.execute(_FORGET_OF_KEY, owner)
            await connection.execute(f"NOTIFY {CHANNEL}")

        await self._database.transaction(work)

    async def erase(self, owner: str, node: str | None) -> None:
        """Erases the content of copies of the owner's sessions; `node` None: those of all nodes."""
        after = ""
        while keys := await self._keys(_KEYS, owner, node, after, _SESSIONS):
            for key in keys:
                await self._erase_chain(key)
            await self._forget(keys)
            after = keys[-1]

    async def chains(self, owner: str) -> AsyncIterator[tuple[str, str]]:
        """The copied events of sessions whose nodes are away, as lines, and the keys of these."""
        after = ""
        while keys := await self._keys(_KEYS_OF_SILENT, owner, after, _SESSIONS):
            for key in keys:
                async for line in self._lines(key):
                    yield line, key
            after = keys[-1]

    async def _lines(self, key: str) -> AsyncIterator[str]:
        after: int | None = 0
        while after is not None:
            begin = after

            async def work(connection: Connection, begin: int = begin) -> list[tuple[int, str]]:
                rows = await connection.fetch(_PORTION, key, begin, _EVENTS, _BYTES)
                return [
                    (row["seq"], canonical(full_event(row["body"], row["prev_hash"], row["hash"])))
                    for row in rows
                ]

            found = await self._database.transaction(work)
            for _, line in found:
                yield line + "\n"
            after = found[-1][0] if found else None

    async def _keys(self, statement: str, *values: object) -> list[str]:
        async def work(connection: Connection) -> list[str]:
            return [row["session_key"] for row in await connection.fetch(statement, *values)]

        return await self._database.transaction(work)

    async def _erase_chain(self, key: str) -> None:
        portion = _CopiedPortion(0)
        while portion.last is not None:

            async def work(connection: Connection, after: int = portion.last) -> _CopiedPortion:
                return await _erase_portion(connection, key, after)

            portion = await self._database.transaction(work)

    async def _forget(self, keys: Sequence[str]) -> None:
        async def work(connection: Connection) -> None:
            await connection.execute(
                "DELETE FROM hook_deliveries WHERE session_key = ANY($1::text[])", keys
            )
            await connection.execute(_FORGET_LISTED, keys)

        await self._database.transaction(work)


async def _erase_portion(connection: Connection, key: str, after: int) -> _CopiedPortion:
    """A chain with an event of an earlier version, which has no salt, is removed as a whole."""
    rows = await connection.fetch(f"{_PORTION} FOR UPDATE", key, after, _EVENTS, _BYTES)
    seqs: list[int] = []
    bodies: list[str] = []
    for row in rows:
        event = json.loads(row["body"])
        if DIGEST in event:
            continue
        if SALT not in event:
            await connection.execute("DELETE FROM shipped WHERE session_key = $1", key)
            return _CopiedPortion(None)
        seqs.append(row["seq"])
        bodies.append(canonical(erased(event)))
    if seqs:
        await connection.execute(_ERASE, key, seqs, bodies)
    return _CopiedPortion(rows[-1]["seq"] if rows else None)
