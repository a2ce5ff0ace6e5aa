"""Hooks in the database, and how far the record has been looked at for each."""

import json
import logging
import sqlite3
from collections.abc import Collection
from dataclasses import replace

from orchestrator.ground.store.effect import Effect
from orchestrator.operate.hooks.hook import Hook
from orchestrator.record.audit.writer import last_id
from orchestrator.record.secrets.sealer import Sealer

log = logging.getLogger(__name__)

# Events that a node looks at when it hears of a hook late.
_MOST_MISSED = 10_000
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
    return [(restored(*columns), sealed) for *columns, sealed in rows.fetchall()]


def position(connection: sqlite3.Connection, hook_id: str) -> int:
    """The last event that was looked at; a new hook begins behind the record's end."""
    connection.execute(
        "INSERT OR IGNORE INTO hook_positions VALUES (?, ?)", (hook_id, last_id(connection))
    )
    (found,) = connection.execute(
        "SELECT position FROM hook_positions WHERE hook_id = ?", (hook_id,)
    ).fetchone()
    return int(found)


def begin_after(connection: sqlite3.Connection, hook_id: str, created_at: str) -> None:
    """A hook that was added elsewhere begins with what was recorded here since then.

    Of what this node has not heard for long, the latest events count.
    """
    connection.execute(
        "INSERT OR IGNORE INTO hook_positions SELECT ?1, coalesce(min(id) FILTER (WHERE time >= ?2)"
        " - 1, max(id), 0) FROM (SELECT id, time FROM events ORDER BY id DESC LIMIT ?3)",
        (hook_id, created_at, _MOST_MISSED),
    )


def opened(hook: Hook, sealed: bytes, sealer: Sealer | None) -> Hook:
    """The hook with its secret; without, if that can't be opened."""
    secret = None if sealer is None else sealer.open(sealed, bound(hook))
    if secret is None:
        log.error("the secret of the hook %s is lost: add it again", hook.id)
    return replace(hook, secret=secret)


def unknown(connection: sqlite3.Connection, known: Collection[str]) -> list[str]:
    """Hooks that are gone but still have rows, such as those that left the configuration."""
    found = connection.execute(
        "SELECT hook_id FROM hook_positions UNION SELECT DISTINCT hook_id FROM hook_deliveries"
    ).fetchall()
    return [hook_id for (hook_id,) in found if hook_id not in known]


def restored(
    hook_id: str,
    url: str,
    events: str,
    key: str | None,
    managed_by: str | None,
    set_by: str,
    created_at: str,
) -> Hook:
    """The hook of a row, without its secret."""
    return Hook(
        hook_id, url, tuple(json.loads(events)), key, managed_by, set_by, created_at, secret=None
    )
