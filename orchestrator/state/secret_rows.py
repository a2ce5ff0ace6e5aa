"""Stored secrets: rows that commit together with their audit events."""

import json
import sqlite3
from typing import Any

from orchestrator.ground.store.effect import Effect, executing
from orchestrator.state.secret import Holder, Secret


def bound(secret: Secret) -> bytes:
    """The words with which a value is sealed: whose it is, and which requests may have it."""
    return json.dumps([*secret.holder, secret.name, use_of(secret)], sort_keys=True).encode()


def putting(secret: Secret, sealed: bytes) -> Effect:
    """Stores a secret in place of an earlier one of that name."""
    row = (
        *secret.holder,
        secret.name,
        json.dumps(use_of(secret)),
        sealed,
        secret.set_by,
        secret.created_at,
        secret.set_at,
    )
    return executing("INSERT OR REPLACE INTO secrets VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def removing(secret: Secret) -> Effect:
    """Removes a secret."""
    return executing(
        "DELETE FROM secrets WHERE key = ? AND session_key = ? AND name = ?",
        (*secret.holder, secret.name),
    )


def removing_all(session_key: str) -> Effect:
    """Removes all secrets of a session."""
    return executing("DELETE FROM secrets WHERE session_key = ?", (session_key,))


def stored(connection: sqlite3.Connection) -> list[tuple[Secret, bytes]]:
    """All stored secrets without their values, and the sealed values."""
    rows = connection.execute(
        "SELECT key, session_key, name, use, sealed, set_by, created_at, set_at FROM secrets"
    )
    return [
        (restored(Holder(key, session_key), name, json.loads(use), *times), sealed)
        for key, session_key, name, use, sealed, *times in rows
    ]


def use_of(secret: Secret) -> dict[str, Any]:
    """Which requests may have it, as JSON."""
    return {
        "hosts": list(secret.hosts),
        "headers": list(secret.headers),
        "levels": None if secret.levels is None else list(secret.levels),
        "variable": secret.variable,
    }


def restored(
    holder: Holder, name: str, use: dict[str, Any], set_by: str, created_at: str, set_at: str
) -> Secret:
    """The secret of a row, without its value."""
    return Secret(
        name,
        holder,
        tuple(use["hosts"]),
        tuple(use["headers"]),
        None if use["levels"] is None else tuple(use["levels"]),
        use["variable"],
        created_at,
        set_at,
        value=None,
        set_by=set_by,
    )
