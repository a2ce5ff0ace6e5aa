"""Stored packs: of live sessions, and of those that missed something, while their workspace exists.

There is at most one for a session id, and one more while a session with that id is being created.
"""

import json
import sqlite3

from orchestrator.state.pack import Pack
from paddock.contract.words import Rationale


def insert(connection: sqlite3.Connection, session_key: str, session_id: str, pack: Pack) -> None:
    """Stores the pack of a session that is being created."""
    connection.execute(
        "INSERT INTO packs (session_key, session_id, pack) VALUES (?, ?, ?)",
        (session_key, session_id, json.dumps(pack.stored())),
    )


def forget_earlier(connection: sqlite3.Connection, session_key: str, session_id: str) -> None:
    """Removes the packs of earlier sessions with that id, once this one is created."""
    connection.execute(
        "DELETE FROM packs WHERE session_id = ? AND session_key != ?", (session_id, session_key)
    )


def forget(connection: sqlite3.Connection, session_key: str) -> None:
    """Removes the pack of a session that nobody will refine."""
    connection.execute("DELETE FROM packs WHERE session_key = ?", (session_key,))


def forget_all(connection: sqlite3.Connection, session_id: str) -> None:
    """Removes the pack of the sessions with that id, whose workspace is gone."""
    connection.execute("DELETE FROM packs WHERE session_id = ?", (session_id,))


def misses(connection: sqlite3.Connection, owner: str, work_id: str) -> int:
    """How many sessions of a work item ended because something was missing in their packs."""
    (count,) = connection.execute(
        "SELECT count(*) FROM sessions WHERE owner = ? AND work_id = ?"
        " AND json_extract(termination, '$.rationale_code') = ?",
        (owner, work_id, Rationale.CONTEXT_MISS),
    ).fetchone()
    return int(count)


def latest_key(connection: sqlite3.Connection, session_id: str, owner: str | None) -> str | None:
    """The key of the latest session with that id (and owner) that had a pack."""
    row = connection.execute(
        "SELECT key FROM sessions WHERE id = :id AND id = :id COLLATE BINARY"
        " AND (:owner IS NULL OR owner = :owner) AND consume IS NOT NULL AND acknowledged = 1"
        " ORDER BY incarnation DESC LIMIT 1",
        {"id": session_id, "owner": owner},
    ).fetchone()
    return None if row is None else str(row[0])
