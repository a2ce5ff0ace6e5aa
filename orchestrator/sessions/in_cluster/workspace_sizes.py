"""The size limits of workspaces, as they count for their owners."""

import sqlite3


def size_of(conn: sqlite3.Connection, workspace_id: str) -> int | None:
    """The workspace's size limit in bytes; None if there is no such workspace."""
    row = conn.execute("SELECT size FROM workspaces WHERE id = ?", (workspace_id,)).fetchone()
    return None if row is None else int(row[0])


def all_sizes(conn: sqlite3.Connection) -> dict[str, int]:
    """The size limits of all workspaces and volumes in bytes, by their ids."""
    return dict(conn.execute("SELECT id, size FROM workspaces").fetchall())
