"""Terminals in the database: rows that commit together with their audit events."""

import json
import sqlite3
from typing import NamedTuple

from orchestrator.ground.store.effect import Effect, executing
from orchestrator.work.terminals.record import TerminalRecord


class TerminalRow(NamedTuple):
    """A stored terminal, and its session."""

    session_key: str
    record: TerminalRecord


def opening(session_key: str, record: TerminalRecord) -> Effect:
    """Stores a terminal that is about to be opened."""
    return executing(
        "INSERT INTO terminals (id, session_key, opened_at, record) VALUES (?, ?, ?, ?)",
        (record.id, session_key, record.opened_at, json.dumps(record.stored())),
    )


def ending(record: TerminalRecord) -> Effect:
    """Stores how a terminal has ended."""
    return executing(
        "UPDATE terminals SET ended_at = ?, record = ? WHERE id = ?",
        (record.ended_at, json.dumps(record.stored()), record.id),
    )


def of_session(connection: sqlite3.Connection, session_key: str) -> list[TerminalRow]:
    """A session's terminals, oldest first."""
    return _rows(connection, "session_key = ? ORDER BY opened_at, id", session_key)


def one(connection: sqlite3.Connection, session_key: str, terminal_id: str) -> TerminalRow | None:
    """A terminal of a session."""
    rows = _rows(connection, "session_key = ? AND id = ?", session_key, terminal_id)
    return rows[0] if rows else None


def not_ended(connection: sqlite3.Connection) -> list[TerminalRow]:
    """Terminals without a recorded end."""
    return _rows(connection, "ended_at IS NULL ORDER BY id")


def _rows(connection: sqlite3.Connection, condition: str, *values: str) -> list[TerminalRow]:
    query = f"SELECT session_key, record FROM terminals WHERE {condition}"  # noqa: S608
    found = connection.execute(query, values)
    return [TerminalRow(row[0], TerminalRecord.restored(json.loads(row[1]))) for row in found]
