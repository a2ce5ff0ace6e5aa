"""Timelines in the database: rows that commit together with audit events."""

import sqlite3
from collections.abc import Sequence

from orchestrator.ground.store.effect import Effect
from orchestrator.programs.turns.runs.timeline import TimelineEntry

# Characters on one page.
_MOST_PAGE = 4 * 1024 * 1024


def saving(session_key: str, entries: Sequence[TimelineEntry], first: int) -> Effect:
    """Adds entries, and removes those before the first that is kept."""
    rows = [(session_key, each.seq, each.turn, each.time, each.text) for each in entries]

    def effect(connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO timeline (session_key, seq, turn, time, message) VALUES (?, ?, ?, ?, ?)",
            rows,
        )
        connection.execute(
            "DELETE FROM timeline WHERE session_key = ? AND seq < ?", (session_key, first)
        )

    return effect


def all_of(connection: sqlite3.Connection, session_key: str) -> list[TimelineEntry]:
    """What is kept of a session's timeline."""
    rows = connection.execute(
        "SELECT seq, turn, time, message FROM timeline WHERE session_key = ? ORDER BY seq",
        (session_key,),
    )
    return [TimelineEntry.restored(*row) for row in rows]


def page(
    connection: sqlite3.Connection, session_key: str, after: int, limit: int
) -> tuple[list[TimelineEntry], bool]:
    """Entries with higher numbers, in order, and whether there may be more.

    There are fewer than `limit` if they are long.
    """
    rows = connection.execute(
        "SELECT seq, turn, time, message FROM timeline WHERE session_key = ? AND seq > ?"
        " ORDER BY seq LIMIT ?",
        (session_key, after, limit),
    )
    found: list[TimelineEntry] = []
    size = 0
    for row in rows:
        if found and size + len(row[-1]) > _MOST_PAGE:
            return found, True
        size += len(row[-1])
        found.append(TimelineEntry.restored(*row))
    return found, len(found) == limit
