"""The rows of an owner's sessions without their content.

Each function runs inside the caller's transaction, and reads or changes a bounded portion.
"""

import json
import sqlite3
from typing import NamedTuple

from orchestrator.ground.events import SYSTEM_KEY
from paddock.audit.chain import DIGEST, SALT, canonical, erased

# A portion ends after so many bytes of events, or so many rows. Commands wait for the writer, which
# a portion takes 5 to 10 ms.
_PORTION_BYTES = 64 * 1024
_PORTION = 100
# The order to erase, and what else says who had what right, is no content.
_KEPT = (
    *("key.create", "key.revoke", "owner.erase", "owner.erased", "owner.export"),
    *("audit.archived", "audit.erased"),
)
# Tables whose rows are all content, by their sessions' keys, and what else a row is found by.
CONTENT_TABLES = {
    "approvals": "number",
    "terminals": "id",
    "turns": "number",
    "turn_notes": "session_key",
    "timeline": "seq",
    "run_queue": "seq",
}
_MORE_TABLES = {"hook_deliveries": "number", "egress_connections": "id"}
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


def sessions(connection: sqlite3.Connection, owner: str, after: str) -> list[EndedSession]:
    """The owner's ended sessions behind that key."""
    rows = connection.execute(
        "SELECT key, id FROM sessions WHERE owner = ? AND key > ?"
        " AND status NOT IN ('active', 'paused') ORDER BY key LIMIT ?",
        (owner, after, _PORTION),
    )
    return [EndedSession(*row) for row in rows]


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
    rows = _portion(connection, key, after)
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
    return ErasedPortion(rows[-1][1] if rows else None, done, old)


def _portion(connection: sqlite3.Connection, key: str, after: int) -> list[tuple[int, int, str]]:
    """The id, the place and the text of the next events: at least one, if there is one."""
    found = []
    size = 0
    for row in connection.execute(_OF_KEY, (key, after, _PORTION)):
        found.append(row)
        size += len(row[2])
        if size >= _PORTION_BYTES:
            break
    return found


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


def erase_session(connection: sqlite3.Connection, key: str) -> bool:
    """Erases a portion of what the other tables have of an ended session; whether it was all."""
    for table, column in (CONTENT_TABLES | _MORE_TABLES).items():
        deleted = connection.execute(
            f"DELETE FROM {table} WHERE session_key = ? AND {column} IN"  # noqa: S608 - ours
            f" (SELECT {column} FROM {table} WHERE session_key = ? LIMIT ?)",
            (key, key, _PORTION),
        )
        if deleted.rowcount == _PORTION:
            return False
    connection.execute(
        "UPDATE sessions SET terms = '{}', egress = '{}', consume = NULL, secret_names = '[]',"
        " seal_key = x'' WHERE key = ?",
        (key,),
    )
    return True


def erase_own_of_key(connection: sqlite3.Connection, owner: str) -> bool:
    """Deletes a portion of what is here of a key itself; whether it was all.

    A node of a cluster may have it from before, when it was alone.
    """
    rows = connection.execute(
        "SELECT number FROM memory WHERE owner = ? LIMIT ?", (owner, _PORTION)
    ).fetchall()
    connection.executemany("DELETE FROM memory_words WHERE rowid = ?", rows)
    connection.executemany("DELETE FROM memory WHERE number = ?", rows)
    connection.execute("DELETE FROM secrets WHERE key = ? AND session_key = ''", (owner,))
    connection.execute("DELETE FROM hooks WHERE managed_by = ?", (owner,))
    return len(rows) < _PORTION


def replace_archive(connection: sqlite3.Connection, key: str, seal: tuple[str, int] | None) -> None:
    """Notes the SHA-256 and size of an archive that was made anew; None: it is gone."""
    if seal is None:
        connection.execute("DELETE FROM archives WHERE session_key = ?", (key,))
    else:
        connection.execute(
            "UPDATE archives SET sha256 = ?, bytes = ? WHERE session_key = ?", (*seal, key)
        )
