"""Hooks in the database, and how far the record has been looked at for each."""

import json
import sqlite3
from collections.abc import Collection

from orchestrator.ground.store.effect import Effect
from orchestrator.operate.hooks.hook import Hook
from orchestrator.record.audit.writer import last_id

_COLUMNS = "id, url, events, key, managed_by, set_by, created_at, sealed"


def bound(hook: Hook) -> bytes:
    """What the secret is bound to when it is sealed: its hook, and the hook's URL."""
    return json.dumps([hook.id, hook.url]).encode()


def adding(hook: Hook, sealed: bytes) -> Effect:
    """Stores a hook, which gets messages about the events after this one."""
    row = (
        *(hook.id, hook.url, json.dumps(hook.events), hook.key, hook.managed_by),
        *(hook.set_by, hook.created_at, sealed),
    )

    def effect(connection: sqlite3.Connection) -> None:
        connection.execute(
            f"INSERT INTO hooks ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - ours
            row,
        )
        connection.execute(
            "INSERT INTO hook_positions VALUES (?, ?)", (hook.id, last_id(connection))
        )

    return effect


def removing(hook_id: str) -> Effect:
    """Removes a hook; its deliveries are cleared separately, because there may be many."""

    def effect(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM hooks WHERE id = ?", (hook_id,))
        connection.execute("DELETE FROM hook_positions WHERE hook_id = ?", (hook_id,))

    return effect


def stored(connection: sqlite3.Connection) -> list[tuple[Hook, bytes]]:
    """All stored hooks without their secrets, and the sealed secrets."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM hooks ORDER BY created_at, id")  # noqa: S608
    return [(_stored(*columns), sealed) for *columns, sealed in rows.fetchall()]


def position(connection: sqlite3.Connection, hook_id: str) -> int:
    """The last event that was looked at; a new hook begins behind the record's end."""
    connection.execute(
        "INSERT OR IGNORE INTO hook_positions VALUES (?, ?)", (hook_id, last_id(connection))
    )
    (found,) = connection.execute(
        "SELECT position FROM hook_positions WHERE hook_id = ?", (hook_id,)
    ).fetchone()
    return int(found)


def unknown(connection: sqlite3.Connection, known: Collection[str]) -> list[str]:
    """Hooks that are gone but still have rows, such as those that left the configuration."""
    found = connection.execute(
        "SELECT hook_id FROM hook_positions UNION SELECT DISTINCT hook_id FROM hook_deliveries"
    ).fetchall()
    return [hook_id for (hook_id,) in found if hook_id not in known]


def owners(connection: sqlite3.Connection, session_keys: Collection[str]) -> dict[str, str]:
    """The keys whose sessions these are."""
    found: dict[str, str] = {}
    for session_key in session_keys:
        row = connection.execute(
            "SELECT owner FROM sessions WHERE key = ?", (session_key,)
        ).fetchone()
        if row is not None:
            found[session_key] = row[0]
    return found


def _stored(
    hook_id: str,
    url: str,
    events: str,
    key: str | None,
    managed_by: str | None,
    set_by: str,
    created_at: str,
) -> Hook:
    return Hook(
        hook_id, url, tuple(json.loads(events)), key, managed_by, set_by, created_at, secret=None
    )
