"""The rows of an owner's sessions without their content.

Each function runs inside the caller's transaction, and reads or changes a bounded portion.
"""

import json
import sqlite3
from typing import NamedTuple

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.events import SYSTEM_KEY
from orchestrator.ground.store.effect import Effect, executing
from paddock.audit.chain import DIGEST, SALT, canonical, erased

# So many events of 3 KB take the writer 15 to 40 ms, for which commands wait.
_PORTION = 200
# The order to erase, and what else says who had what right, is no content.
_KEPT = (
    *("key.create", "key.revoke", "owner.erase", "owner.erased", "owner.export"),
    *("audit.archived", "audit.erased"),
)
_MOST_NAMED = 5
# Tables whose rows are all content, by their sessions' keys.
_TABLES = ("approvals", "terminals", "turns", "turn_notes", "timeline", "run_queue")
_OF_KEY = """
    SELECT id, seq, body FROM events
    WHERE session_key = ? AND seq > ? ORDER BY seq LIMIT ?
"""


class EndedSession(NamedTuple):
    """A session that has ended."""

    key: str
    id: str


class ErasedPortion(NamedTuple):
    """How far a chain is erased, and what was done: `last` is None behind its end.

    `old` events are of earlier versions and have no salt, so their content can't be taken away.
    """

    last: int | None
    erased: int
    old: int


def beginning(owner: str, asked_by: str) -> Effect:
    """An effect that begins an erasure. Raises (from the transaction): ConflictError."""

    def effect(connection: sqlite3.Connection) -> None:
        check_ended(connection, owner)
        connection.execute(
            "INSERT INTO erasures VALUES (?, ?) ON CONFLICT DO NOTHING", (owner, asked_by)
        )

    return effect


def ending(owner: str) -> Effect:
    """An effect that ends it."""
    return executing("DELETE FROM erasures WHERE owner = ?", (owner,))


def begun(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """The owners whose content is being erased, and who has asked for it."""
    return connection.execute("SELECT owner, asked_by FROM erasures ORDER BY owner").fetchall()


def check_ended(connection: sqlite3.Connection, owner: str) -> None:
    """Raises: ConflictError that names sessions of the owner that have not ended."""
    found = connection.execute(
        "SELECT id FROM sessions WHERE owner = ? AND status IN ('active', 'paused') LIMIT ?",
        (owner, _MOST_NAMED + 1),
    ).fetchall()
    if found:
        names = ", ".join(name for (name,) in found[:_MOST_NAMED])
        more = ", …" if len(found) > _MOST_NAMED else ""
        raise ConflictError(f"sessions of {owner} have not ended: close them first: {names}{more}")


def sessions(connection: sqlite3.Connection, owner: str, after: str) -> list[EndedSession]:
    """The owner's ended sessions behind that key."""
    rows = connection.execute(
        "SELECT key, id FROM sessions WHERE owner = ? AND key > ?"
        " AND status NOT IN ('active', 'paused') ORDER BY key LIMIT ?",
        (owner, after, _PORTION),
    )
    return [EndedSession(*row) for row in rows]


def shown(connection: sqlite3.Connection, key: str) -> dict[str, object]:
    """What the database has of a session, for its owner."""
    columns = "id, owner, incarnation, status, permission_level, created_at, terminated_at"
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    row = cursor.execute(
        f"SELECT key, {columns}, termination, terms FROM sessions WHERE key = ?",  # noqa: S608
        (key,),
    ).fetchone()
    return {
        **dict(row),
        "termination": None if row["termination"] is None else json.loads(row["termination"]),
        "terms": json.loads(row["terms"]),
    }


def archives(connection: sqlite3.Connection, owner: str, after: str) -> list[tuple[str, str]]:
    """The keys of the owner's archived chains behind that key, and their files."""
    return connection.execute(
        "SELECT session_key, file FROM archives WHERE owner = ? AND session_key > ?"
        " ORDER BY session_key LIMIT ?",
        (owner, after, _PORTION),
    ).fetchall()


def erase_events(
    connection: sqlite3.Connection, key: str, after: int, owner: str | None = None
) -> ErasedPortion:
    """Erases the content of a chain's events behind that one; with `owner`, of its events only."""
    rows = connection.execute(_OF_KEY, (key, after, _PORTION)).fetchall()
    done = old = 0
    for event_id, _, body in rows:
        event = json.loads(body)
        if DIGEST in event or (owner is not None and not _concerns(event, owner)):
            continue
        if SALT not in event:
            old += 1
            continue
        connection.execute(
            "UPDATE events SET body = ?, command_id = NULL WHERE id = ?",
            (canonical(erased(event)), event_id),
        )
        done += 1
    last = rows[-1][1] if len(rows) == _PORTION else None
    return ErasedPortion(last, done, old)


def _concerns(event: dict[str, object], owner: str) -> bool:
    """Whether an event of the instance is one of the owner's, with content."""
    args = event["args"]
    named = args.get("key") if isinstance(args, dict) else None
    return event["operation"] not in _KEPT and owner in (named, event["actor"])


def delete_events(connection: sqlite3.Connection, key: str) -> bool:
    """Deletes a portion of a session's chain; returns whether it was the last."""
    assert key != SYSTEM_KEY  # noqa: S101 - the instance's own chain always stays
    deleted = connection.execute(
        "DELETE FROM events WHERE id IN ("
        "SELECT id FROM events WHERE session_key = ? ORDER BY seq LIMIT ?)",
        (key, _PORTION),
    )
    return deleted.rowcount < _PORTION


def erase_session(connection: sqlite3.Connection, key: str) -> None:
    """Erases what the other tables have of an ended session."""
    for table in (*_TABLES, "hook_deliveries", "egress_connections"):
        connection.execute(f"DELETE FROM {table} WHERE session_key = ?", (key,))  # noqa: S608
    connection.execute(
        "UPDATE sessions SET terms = '{}', egress = '{}', consume = NULL, secret_names = '[]',"
        " seal_key = x'' WHERE key = ?",
        (key,),
    )


def replace_archive(connection: sqlite3.Connection, key: str, seal: tuple[str, int] | None) -> None:
    """Notes the SHA-256 and size of an archive that was made anew; None: it is gone."""
    if seal is None:
        connection.execute("DELETE FROM archives WHERE session_key = ?", (key,))
    else:
        connection.execute(
            "UPDATE archives SET sha256 = ?, bytes = ? WHERE session_key = ?", (*seal, key)
        )
