"""Open ports in the database: rows that commit together with their audit events."""

import sqlite3
from datetime import datetime
from typing import NamedTuple

from orchestrator.ground.store.effect import Effect, executing
from orchestrator.state.open_port import OpenPort


class PortRow(NamedTuple):
    """A stored port, and its session."""

    session_key: str
    port: OpenPort


def opening(session_key: str, port: OpenPort, opened_by: str, expires_at: datetime) -> Effect:
    """Stores a port, which is opened or gets another expiry."""
    row = (session_key, port.port, port.opening, port.opened_at, opened_by, expires_at.isoformat())
    return executing("INSERT OR REPLACE INTO ports VALUES (?, ?, ?, ?, ?, ?)", row)


def closing(session_key: str, port: int) -> Effect:
    """Removes a port."""
    return executing("DELETE FROM ports WHERE session_key = ? AND port = ?", (session_key, port))


def stored(connection: sqlite3.Connection) -> list[PortRow]:
    """All stored ports, those of ended sessions included."""
    rows = connection.execute(
        "SELECT session_key, port, opening, opened_at, opened_by, expires_at FROM ports"
    )
    return [
        PortRow(key, OpenPort(port, name, at, by, datetime.fromisoformat(expires)))
        for key, port, name, at, by, expires in rows
    ]
