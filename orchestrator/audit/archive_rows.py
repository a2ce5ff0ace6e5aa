"""Archived chains as they are stored. Each function runs inside a transaction of the caller's."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from paddock.audit.chain import canonical

# Rows that are deleted at once: whoever else writes waits for no more.
_PORTION = 500


class Ended(NamedTuple):
    """A session that has ended, with what it takes of the ledger."""

    key: str
    id: str
    owner: str
    incarnation: int
    created_at: str
    terminated_at: str
    audit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """An archived chain: its file, and the head that it ends with."""

    session_key: str
    session_id: str
    owner: str
    file: str
    sha256: str
    bytes: int
    seq: int
    hash: str
    archived_at: str

    def public(self) -> dict[str, Any]:
        """As a plain object."""
        return asdict(self)


_NAMES = tuple(field.name for field in fields(Archived))
_COLUMNS = ", ".join(_NAMES)
_MARKS = ", ".join(f":{name}" for name in _NAMES)


def due(connection: sqlite3.Connection, ended_before: str, most: int) -> list[Ended]:
    """Sessions without an event since that time that are not archived, oldest end first."""
    rows = connection.execute(
        "SELECT key, id, owner, incarnation, created_at, terminated_at, audit_bytes FROM sessions"
        " WHERE terminated_at < :before AND NOT EXISTS ("
        "SELECT 1 FROM archives WHERE session_key = sessions.key)"
        # Ends of these that could not be recorded are recorded by the next start.
        " AND NOT EXISTS (SELECT 1 FROM terminals WHERE session_key = sessions.key"
        " AND ended_at IS NULL)"
        " AND NOT EXISTS (SELECT 1 FROM approvals WHERE session_key = sessions.key"
        " AND status = 'pending')"
        # What came of its end may be on record much later.
        " AND coalesce((SELECT time FROM events WHERE session_key = sessions.key"
        " ORDER BY seq DESC LIMIT 1), '') < :before"
        " ORDER BY terminated_at LIMIT :most",
        {"before": ended_before, "most": most},
    )
    return [Ended(*row) for row in rows]


def rows_of(connection: sqlite3.Connection, table: str, key: str) -> list[str]:
    """The session's rows of `approvals` or `terminals`, as lines of JSON."""
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    found = cursor.execute(
        f"SELECT * FROM {table} WHERE session_key = ? ORDER BY rowid",  # noqa: S608 - ours
        (key,),
    )
    return [canonical(dict(row)) + "\n" for row in found]


def inserting(archived: Archived) -> Callable[[sqlite3.Connection], None]:
    """An effect that stores it; from then on its rows may be deleted."""

    def apply(connection: sqlite3.Connection) -> None:
        connection.execute(
            f"INSERT INTO archives ({_COLUMNS}) VALUES ({_MARKS})",  # noqa: S608 - ours
            archived.public(),
        )

    return apply


def empty(connection: sqlite3.Connection, key: str) -> bool:
    """Deletes a portion of an archived session's rows; whether that was the rest."""
    deleted = connection.execute(
        "DELETE FROM events WHERE id IN ("
        "SELECT id FROM events WHERE session_key = ? ORDER BY seq LIMIT ?)",
        (key, _PORTION),
    ).rowcount
    if deleted:
        return False
    for table in ("approvals", "terminals", "event_counts"):
        connection.execute(f"DELETE FROM {table} WHERE session_key = ?", (key,))  # noqa: S608
    connection.execute("UPDATE sessions SET audit_bytes = 0 WHERE key = ?", (key,))
    connection.execute("UPDATE archives SET emptied = 1 WHERE session_key = ?", (key,))
    return True


def left(connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
    """Archived sessions of which something is left: key, owner, bytes of the ledger."""
    return connection.execute(
        "SELECT session_key, archives.owner, coalesce(audit_bytes, 0) FROM archives"
        " LEFT JOIN sessions ON sessions.key = session_key WHERE emptied = 0"
    ).fetchall()


def find(connection: sqlite3.Connection, session_key: str) -> Archived | None:
    """The archive of that session."""
    return next(_read(connection, "session_key = ?", session_key), None)


def page(connection: sqlite3.Connection, after: str, limit: int) -> list[Archived]:
    """Archives in the order of their sessions' keys, after that key."""
    return list(_read(connection, "session_key > ? ORDER BY session_key LIMIT ?", after, limit))


def _read(connection: sqlite3.Connection, where: str, *values: Any) -> Iterator[Archived]:
    found = connection.execute(f"SELECT {_COLUMNS} FROM archives WHERE {where}", values)  # noqa: S608
    for row in found.fetchall():
        yield Archived(**dict(zip(_NAMES, row, strict=True)))
