"""How far each export has come, and the events that follow. Each function is in a transaction."""

import json
import sqlite3
from collections.abc import Collection

from orchestrator.record.audit.recorded_event import SELECT_RECORDED, Recorded
from orchestrator.record.audit.writer import last_id

# One batch. A longer event is a batch of its own.
MOST_EVENTS = 500
MOST_BYTES = 1024 * 1024
_AFTER = f"{SELECT_RECORDED} WHERE id > ? ORDER BY id LIMIT ?"
_KEEP = """
    INSERT INTO export_positions VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET position = max(position, excluded.position)
"""


def keep_only(connection: sqlite3.Connection, names: Collection[str]) -> None:
    """Forgets the exports that left the configuration: nothing waits for them any more."""
    connection.execute(
        "DELETE FROM export_positions WHERE name NOT IN (SELECT value FROM json_each(?))",
        (json.dumps(list(names)),),
    )


def begin(connection: sqlite3.Connection, name: str, *, at_end: bool) -> int:
    """The position from which the export goes on; a new one begins with all events, or none."""
    first = last_id(connection) if at_end else 0
    connection.execute("INSERT OR IGNORE INTO export_positions VALUES (?, ?)", (name, first))
    (found,) = connection.execute(
        "SELECT position FROM export_positions WHERE name = ?", (name,)
    ).fetchone()
    return int(found)


def acknowledge(connection: sqlite3.Connection, name: str, position: int) -> None:
    """Everything up to there has been taken."""
    connection.execute(_KEEP, (name, position))


def batch(connection: sqlite3.Connection, after: int) -> list[Recorded]:
    """The events after that position, in the order in which they were committed."""
    found, size = list[Recorded](), 0
    cursor = connection.execute(_AFTER, (after, MOST_EVENTS))
    try:
        for row in cursor:
            found.append(Recorded(*row))
            size += len(found[-1].text)
            if size >= MOST_BYTES:
                break
    finally:
        cursor.close()
    return found
