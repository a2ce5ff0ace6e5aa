"""The long-term memory in the database. Text that is searched for is never a query's syntax."""

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from orchestrator.ground.store.effect import Effect
from orchestrator.work.memory.entries import MemoryEntry
from orchestrator.work.memory.words import WORD, asked

_COLUMNS = "id, owner, namespace, kind, text, tags, session_id, written_by, created_at, changed_at"


def counted(connection: sqlite3.Connection, owner: str) -> int:
    """The number of entries of a key."""
    row = connection.execute("SELECT count(*) FROM memory WHERE owner = ?", (owner,)).fetchone()
    return int(row[0])


def found(
    connection: sqlite3.Connection, owner: str, namespace: str, words: str, limit: int
) -> list[MemoryEntry]:
    """The entries that have one of the words, the best first; without words, the newest."""
    if not WORD.search(words):
        return _entries(
            connection,
            "WHERE owner = ? AND namespace = ? ORDER BY number DESC LIMIT ?",
            (owner, namespace, limit),
        )
    rows = connection.execute(
        "SELECT rowid FROM memory_words WHERE memory_words MATCH ? ORDER BY rank LIMIT ?",
        (_query(owner, namespace, words), limit),
    ).fetchall()
    each = [_entries(connection, "WHERE number = ?", row) for row in rows]
    return [entry for entries in each for entry in entries]


def listed(
    connection: sqlite3.Connection,
    owner: str | None,
    namespace: str | None,
    before: str | None,
    limit: int,
) -> list[MemoryEntry]:
    """Entries, newest first: of one key or of all, and those older than the one with an id."""
    return _entries(
        connection,
        "WHERE (:owner IS NULL OR owner = :owner)"
        " AND (:namespace IS NULL OR namespace = :namespace)"
        " AND (:before IS NULL OR number < (SELECT number FROM memory WHERE id = :before))"
        " ORDER BY number DESC LIMIT :limit",
        {"owner": owner, "namespace": namespace, "before": before, "limit": limit},
    )


def first_of(
    connection: sqlite3.Connection, owner: str, namespace: str, kinds: Sequence[str], limit: int
) -> list[MemoryEntry]:
    """The oldest entries of these kinds, kind by kind."""
    each = [
        _entries(
            connection,
            "WHERE owner = ? AND namespace = ? AND kind = ? ORDER BY number LIMIT ?",
            (owner, namespace, kind, limit),
        )
        for kind in kinds
    ]
    return [entry for entries in each for entry in entries][:limit]


def get(connection: sqlite3.Connection, entry_id: str) -> MemoryEntry | None:
    """One entry."""
    entries = _entries(connection, "WHERE id = ?", (entry_id,))
    return entries[0] if entries else None


def all_entries(connection: sqlite3.Connection) -> list[MemoryEntry]:
    """The entries of all keys, the oldest first: at most 2,000 of each."""
    return _entries(connection, "ORDER BY number", ())


def saving(entry: MemoryEntry) -> Effect:
    """Adds an entry, or replaces the one with its id."""

    def effect(connection: sqlite3.Connection) -> None:
        tags = json.dumps(entry.tags)
        connection.execute(
            f"INSERT INTO memory ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
            " ON CONFLICT (id) DO UPDATE SET namespace = excluded.namespace,"
            " kind = excluded.kind, text = excluded.text, tags = excluded.tags,"
            " session_id = excluded.session_id,"
            " written_by = excluded.written_by, changed_at = excluded.changed_at",
            (
                *(entry.id, entry.owner, entry.namespace, entry.kind, entry.text, tags),
                *(entry.session_id, entry.written_by, entry.created_at, entry.changed_at),
            ),
        )
        number = _number(connection, entry.id)
        connection.execute("DELETE FROM memory_words WHERE rowid = ?", (number,))
        place = _place(entry.owner, entry.namespace)
        connection.execute(
            "INSERT INTO memory_words (rowid, place, text, tags) VALUES (?, ?, ?, ?)",
            (number, place, entry.text, " ".join(entry.tags)),
        )

    return effect


def removing(entry_id: str) -> Effect:
    """Removes an entry, and its words."""

    def effect(connection: sqlite3.Connection) -> None:
        number = _number(connection, entry_id)
        connection.execute("DELETE FROM memory_words WHERE rowid = ?", (number,))
        connection.execute("DELETE FROM memory WHERE number = ?", (number,))

    return effect


def forget_removed(connection: sqlite3.Connection) -> None:
    """Makes the index of words anew, which keeps those of removed entries until then."""
    connection.execute("INSERT INTO memory_words (memory_words) VALUES ('optimize')")


def _query(owner: str, namespace: str, words: str) -> str:
    """Any of the words, each as a literal."""
    some = " OR ".join(f'"{word}"' for word in asked(words))
    return f'place : "{_place(owner, namespace)}" AND {{text tags}} : ({some})'


def _place(owner: str, namespace: str) -> str:
    return "p" + hashlib.sha256(f"{owner}\n{namespace}".encode()).hexdigest()[:32]


def _number(connection: sqlite3.Connection, entry_id: str) -> int | None:
    row = connection.execute("SELECT number FROM memory WHERE id = ?", (entry_id,)).fetchone()
    return None if row is None else int(row[0])


def _entries(connection: sqlite3.Connection, where: str, values: Any) -> list[MemoryEntry]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM memory {where}", values)  # noqa: S608
    return [_entry(*row) for row in rows]


def _entry(*columns: Any) -> MemoryEntry:
    members: dict[str, Any] = dict(zip(_COLUMNS.split(", "), columns, strict=True))
    return MemoryEntry(**members | {"tags": tuple(json.loads(members["tags"]))})
