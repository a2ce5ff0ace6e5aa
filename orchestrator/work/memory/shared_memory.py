"""The long-term memory of a cluster: rows in its database, one list for all nodes.

Text that is searched for is never a query's syntax: `words.py` leaves letters and digits alone.
"""

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.cluster.shared import (
    Connection,
    SharedDatabase,
    Write,
    can_be_stored,
    on_record,
)
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.events import EventDraft
from orchestrator.work.memory.entries import EntryKind, MemoryEntry
from orchestrator.work.memory.memory_store import check_count, gone
from orchestrator.work.memory.words import WORD, query_of, vector_of

_COLUMNS = "id, owner, namespace, kind, text, tags, session_id, written_by, created_at, changed_at"
_SELECT = f"SELECT {_COLUMNS} FROM memory"  # noqa: S608 - names are ours
_ADD = f"INSERT INTO memory ({_COLUMNS}, words) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::tsvector)"  # noqa: S608, E501
_REPLACE = (
    "UPDATE memory SET namespace = $2, kind = $3, text = $4, tags = $5, session_id = $6,"
    " written_by = $7, changed_at = $8, words = $9::text::tsvector WHERE id = $1 RETURNING true"
)
# Long entries count for no more than short ones that say the same.
_BEST = "ts_rank(words, $3::text::tsquery, 1) DESC, number DESC"


class SharedMemory:
    """A `MemoryStore`. Each method raises ClusterUnavailableError."""

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database

    async def found(self, owner: str, namespace: str, words: str, limit: int) -> list[MemoryEntry]:
        """As `MemoryStore.found`."""
        if not WORD.search(words):
            where = "owner = $1 AND namespace = $2 ORDER BY number DESC LIMIT $3"
            return await self._entries(where, owner, namespace, limit)
        query = query_of(words)
        if query is None:
            return []
        where = "owner = $1 AND namespace = $2 AND words @@ $3::text::tsquery"
        return await self._entries(
            f"{where} ORDER BY {_BEST} LIMIT $4", owner, namespace, query, limit
        )

    async def first_of(
        self, owner: str, namespace: str, kinds: Sequence[EntryKind], limit: int
    ) -> list[MemoryEntry]:
        """As `MemoryStore.first_of`."""
        where = "owner = $1 AND namespace = $2 AND kind = ANY($3)"
        order = "array_position($3::text[], kind), number"
        return await self._entries(
            f"{where} ORDER BY {order} LIMIT $4", owner, namespace, list(kinds), limit
        )

    async def listed(
        self, owner: str | None, namespace: str | None, before: str | None, limit: int
    ) -> list[MemoryEntry]:
        """As `MemoryStore.listed`."""
        if before is not None and not can_be_stored(before):
            return []
        return await self._entries(
            "($1::text IS NULL OR owner = $1) AND ($2::text IS NULL OR namespace = $2)"
            " AND ($3::text IS NULL OR number < (SELECT number FROM memory WHERE id = $3))"
            " ORDER BY number DESC LIMIT $4",
            *(owner, namespace, before, limit),
        )

    async def get(self, entry_id: str) -> MemoryEntry | None:
        """As `MemoryStore.get`."""
        if not can_be_stored(entry_id):
            return None
        found = await self._entries("id = $1", entry_id)
        return found[0] if found else None

    async def add(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """As `MemoryStore.add`."""

        _check(entry)

        async def check(connection: Connection) -> None:
            count = "SELECT count(*) FROM memory WHERE owner = $1"
            check_count(entry.owner, await connection.fetchval(count, entry.owner))

        async def work(connection: Connection) -> None:
            await alone(connection, entry.owner)
            await check(connection)
            await connection.execute(_ADD, *_row(entry))

        await self._database.transaction(check)
        async with on_record(write, draft):
            await self._database.transaction(work)

    async def replace(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """As `MemoryStore.replace`."""
        _check(entry)
        members = (entry.namespace, entry.kind, entry.text, json.dumps(entry.tags))
        by = (entry.session_id, entry.written_by, entry.changed_at)
        async with on_record(write, draft):
            await self._change(entry.id, _REPLACE, *members, *by, _words(entry))

    async def remove(self, entry: MemoryEntry, draft: EventDraft, write: Write) -> None:
        """As `MemoryStore.remove`."""
        async with on_record(write, draft):
            await self._change(entry.id, "DELETE FROM memory WHERE id = $1 RETURNING true")

    async def _change(self, entry_id: str, statement: str, *values: Any) -> None:
        """Raises: NotFoundError."""

        async def work(connection: Connection) -> Any:
            return await connection.fetchval(statement, entry_id, *values)

        if not await self._database.transaction(work):
            raise gone(entry_id)

    async def _entries(self, where: str, *values: Any) -> list[MemoryEntry]:
        async def work(connection: Connection) -> list[MemoryEntry]:
            rows = await connection.fetch(f"{_SELECT} WHERE {where}", *values)
            return [_entry(*row.values()) for row in rows]

        return await self._database.transaction(work)


async def alone(connection: Connection, owner: str) -> None:
    """Additions of a key wait for each other, so that they don't pass the maximum together."""
    lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"
    await connection.execute(lock, f"memory {owner}")


async def put(connection: Connection, entry: MemoryEntry) -> bool:
    """Adds an entry unless it is there; returns whether it was not. Raises: ValidationError."""
    _check(entry)
    statement = f"{_ADD} ON CONFLICT (id) DO NOTHING RETURNING true"
    return bool(await connection.fetchval(statement, *_row(entry)))


def _row(entry: MemoryEntry) -> tuple[Any, ...]:
    return (
        *(entry.id, entry.owner, entry.namespace, entry.kind, entry.text, json.dumps(entry.tags)),
        *(entry.session_id, entry.written_by, entry.created_at, entry.changed_at, _words(entry)),
    )


def _check(entry: MemoryEntry) -> None:
    """Raises: ValidationError for what PostgreSQL can't keep."""
    for field, texts in (("text", (entry.text,)), ("tags", entry.tags)):
        if not all(map(can_be_stored, texts)):
            raise ValidationError(
                f"{field} has a character that a cluster can't keep: U+0000, or half of a pair",
                field=field,
            )


def _words(entry: MemoryEntry) -> str:
    return vector_of((entry.text, *entry.tags))


def _entry(*columns: Any) -> MemoryEntry:
    members: dict[str, Any] = dict(zip(_COLUMNS.split(", "), columns, strict=True))
    return MemoryEntry(**members | {"tags": tuple(json.loads(members["tags"]))})
