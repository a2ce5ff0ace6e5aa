"""What the database has of an owner's sessions, as lines of JSON, in portions."""

import json
import sqlite3

from orchestrator.operate.privacy.erased_rows import CONTENT_TABLES
from paddock.audit.chain import canonical

# Rows of a portion, which may be histories of models.
_PORTION = 50


def session_line(connection: sqlite3.Connection, key: str) -> str:
    """What is kept of a session besides its record."""
    columns = "id, owner, incarnation, status, permission_level, created_at, terminated_at"
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    row = cursor.execute(
        f"SELECT key, {columns}, termination, terms FROM sessions WHERE key = ?",  # noqa: S608
        (key,),
    ).fetchone()
    shown = {
        **dict(row),
        "termination": None if row["termination"] is None else json.loads(row["termination"]),
        "terms": json.loads(row["terms"]),
    }
    return canonical(shown) + "\n"


def lines_of(
    connection: sqlite3.Connection, table: str, key: str, after: object
) -> tuple[list[str], object]:
    """The session's rows of one of `CONTENT_TABLES` behind that one; the last, if there are more.

    `after` None: from the first one on.
    """
    column = CONTENT_TABLES[table]
    behind, values = ("", ()) if after is None else (f" AND {column} > ?", (after,))
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    rows = cursor.execute(
        f"SELECT * FROM {table} WHERE session_key = ?{behind} ORDER BY {column} LIMIT ?",  # noqa: S608
        (key, *values, _PORTION),
    ).fetchall()
    last = rows[-1][column] if len(rows) == _PORTION else None
    return [canonical(dict(row)) + "\n" for row in rows], last
