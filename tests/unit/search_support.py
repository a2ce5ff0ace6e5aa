"""Sessions to search, what a search must find, and what the index has."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from orchestrator.ground.store.database import Database
from orchestrator.record.search_index.search import Search, search
from orchestrator.record.search_index.search_index import SearchIndex

# The columns of a copy that is searched by a plain scan.
_ALL = """
    SELECT events.id, session_key, sessions.id, owner, incarnation, operation, decision, time, body,
           json_extract(body, '$.actor'), json_extract(body, '$.rule')
    FROM events LEFT JOIN sessions ON sessions.key = session_key ORDER BY events.id DESC
"""
OWNERS = {"k1": "ci", "k2": "ci", "k3": "ops"}
IDS = {"k1": "box", "k2": "box", "k3": "other"}


def add_sessions(connection: sqlite3.Connection) -> None:
    """Two incarnations of one id, and a session of another owner."""
    for number, (key, owner) in enumerate(OWNERS.items(), 1):
        connection.execute(
            "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
            " created_at, incarnation) VALUES (?, ?, ?, 'completed', 'low', '{}', '', ?)",
            (key, IDS[key], owner, number),
        )


async def scanned(database: Database, wanted: Search) -> list[int]:
    """What a search must find, decided row by row."""
    rows = await database.read(lambda connection: connection.execute(_ALL).fetchall())
    found = []
    for row in rows:
        event_id, _, session, owner, incarnation, operation, decision, time, body, actor, rule = row
        if (
            wanted.session in (None, session)
            and (wanted.session is None or wanted.incarnation in (None, incarnation))
            and wanted.owner in (None, owner)
            and wanted.visible_to in (None, owner)
            and wanted.operation in (None, operation)
            and wanted.decision in (None, decision)
            and wanted.actor in (None, actor)
            and wanted.rule in (None, rule)
            and (wanted.text is None or wanted.text.lower() in body.lower())
            and (wanted.since is None or wanted.since <= time)
            and (wanted.until is None or time <= wanted.until)
        ):
            found.append(event_id)
    return found


async def find_all(index: SearchIndex, wanted: Search, limit: int = 7) -> list[int]:
    """The ids of all pages, newest first."""
    found: list[int] = []
    before: int | None = None
    while True:
        page = await search(index, wanted, before, limit)
        found += [event["id"] for event in page.items]
        if page.next is None:
            return found
        assert before is None or page.next < before
        before = page.next


def entries(path: Path, columns: str = "id") -> list[Any]:
    """The rows of the index's file."""
    with closing(sqlite3.connect(path / "search.db")) as connection:
        return connection.execute(f"SELECT {columns} FROM entries ORDER BY id").fetchall()
