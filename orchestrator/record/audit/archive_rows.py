"""Stored archived chains. Each function runs inside the caller's transaction."""

import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from orchestrator.ground.store.effect import Effect, executing
from paddock.audit.chain import canonical

# Rows per deletion, so that other writers wait for no more.
_PORTION = 500


class Ended(NamedTuple):
    """An ended session, with its size in the ledger."""

    key: str
    id: str
    owner: str
    incarnation: int
    created_at: str
    terminated_at: str
    audit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """An archived chain: its file and its head."""

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
        """The archive as a plain object."""
        return asdict(self)


_NAMES = tuple(field.name for field in fields(Archived))
_COLUMNS = ", ".join(_NAMES)
_MARKS = ", ".join(f":{name}" for name in _NAMES)


# Everything up to there is in all exports.
_SENT = "(SELECT coalesce(min(position), 9223372036854775807) FROM export_positions)"
_ALL_DUE = f"""
    SELECT key, id, owner, incarnation, created_at, terminated_at, audit_bytes, coalesce((
            SELECT id FROM events WHERE session_key = sessions.key ORDER BY seq DESC LIMIT 1
        ), 0) > {_SENT} AS unsent
    FROM sessions WHERE terminated_at < :before
    AND NOT EXISTS (SELECT 1 FROM archives WHERE session_key = sessions.key)
    -- If the ends of these could not be recorded, the next start records them.
    AND NOT EXISTS (
        SELECT 1 FROM terminals WHERE session_key = sessions.key AND ended_at IS NULL
    )
    AND NOT EXISTS (
        SELECT 1 FROM approvals WHERE session_key = sessions.key AND status = 'pending'
    )
    -- The outcome of its end may be recorded much later.
    AND coalesce((
        SELECT time FROM events WHERE session_key = sessions.key ORDER BY seq DESC LIMIT 1
    ), '') < :before
"""  # noqa: S608 - ours
_ENDED = "key, id, owner, incarnation, created_at, terminated_at, audit_bytes"
_OLDEST = "ORDER BY terminated_at LIMIT :most"
_DUE = f"SELECT {_ENDED} FROM ({_ALL_DUE}) {_OLDEST}"  # noqa: S608 - ours
# With exports, all that are due are looked at, to add up what is held.
_DUE_WITH_EXPORTS = f"""
    WITH due AS ({_ALL_DUE})
    SELECT {_ENDED} FROM due WHERE NOT unsent
    UNION ALL
    SELECT {_ENDED} FROM (
        SELECT *, sum(audit_bytes) OVER (ORDER BY terminated_at DESC, key) AS held
        FROM due WHERE unsent
    ) WHERE held > :hold
    {_OLDEST}
"""  # noqa: S608 - ours


def due(
    connection: sqlite3.Connection, ended_before: str, most: int, hold_bytes: int
) -> list[Ended]:
    """Unarchived sessions without an event since that time; the oldest end comes first.

    Those of which an export has not sent everything are left out, up to `hold_bytes` of them: the
    newest ones. The others are in the result.
    """
    values = {"before": ended_before, "most": most, "hold": hold_bytes}
    (exports,) = connection.execute("SELECT count(*) FROM export_positions").fetchone()
    rows = connection.execute(_DUE_WITH_EXPORTS if exports else _DUE, values).fetchall()
    return [Ended(*row) for row in rows]


def unsent(connection: sqlite3.Connection, session_key: str) -> int:
    """How many events of that chain an export has not sent yet."""
    (found,) = connection.execute(
        f"SELECT count(*) FROM events WHERE session_key = ? AND id > {_SENT}",  # noqa: S608
        (session_key,),
    ).fetchone()
    return int(found)


def rows_of(connection: sqlite3.Connection, table: str, key: str) -> list[str]:
    """The session's rows of `approvals` or `terminals`, as lines of JSON."""
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    found = cursor.execute(
        f"SELECT * FROM {table} WHERE session_key = ? ORDER BY rowid",  # noqa: S608 - ours
        (key,),
    )
    return [canonical(dict(row)) + "\n" for row in found]


def inserting(archived: Archived) -> Effect:
    """An effect that stores the archive; its rows may be deleted from then on."""
    statement = f"INSERT INTO archives ({_COLUMNS}) VALUES ({_MARKS})"  # noqa: S608 - ours
    return executing(statement, archived.public())


def empty(connection: sqlite3.Connection, key: str) -> bool:
    """Deletes a portion of an archived session's rows; returns whether it was the last."""
    deleted = connection.execute(
        "DELETE FROM events WHERE id IN ("
        "SELECT id FROM events WHERE session_key = ? ORDER BY seq LIMIT ?)",
        (key, _PORTION),
    ).rowcount
    if deleted:
        return False
    for table in (
        "approvals",
        "terminals",
        "turns",
        "turn_notes",
        "timeline",
        "run_queue",
        "event_counts",
    ):
        connection.execute(f"DELETE FROM {table} WHERE session_key = ?", (key,))  # noqa: S608
    connection.execute("UPDATE sessions SET audit_bytes = 0 WHERE key = ?", (key,))
    connection.execute("UPDATE archives SET emptied = 1 WHERE session_key = ?", (key,))
    return True


def left(connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
    """Archived sessions with remaining rows: key, owner, bytes of the ledger."""
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
