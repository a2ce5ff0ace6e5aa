"""Feeds the index from the ledger, a portion per call. Each call is one transaction of the index.

The index is a function of the ledger's events alone: an event that records the archiving of a
chain removes that chain's entries. A kill therefore never leaves more behind than a position.
"""

import sqlite3
from collections import Counter
from typing import NamedTuple

from orchestrator.ground.events import SYSTEM_KEY
from orchestrator.record.search_index.index_file import WORDS
from orchestrator.record.search_index.spans import ENTER_SPANS

# Takes some milliseconds, for which searches wait.
PORTION = 500

_MEMBER = "iif(json_valid(body), json_extract(body, '$.{}'), NULL)"
_ARCHIVED = "iif(session_key = :system AND operation = 'audit.archived', {}, NULL)"
_READ = f"""
    INSERT INTO fresh
    SELECT events.id, hash, time, session_key, sessions.id, owner,
           operation, decision, {_MEMBER.format("actor")}, {_MEMBER.format("rule")},
           {_ARCHIVED.format(_MEMBER.format("args.session_key"))},
           {_ARCHIVED.format(_MEMBER.format("args.session_id"))}
    FROM events LEFT JOIN sessions ON sessions.key = session_key
    WHERE events.id > (SELECT position FROM state) ORDER BY events.id LIMIT :most
"""  # noqa: S608 - ours
_COUNT = """
    INSERT INTO words (kind, word, entries)
    SELECT '{0}', {0}, count(*) FROM fresh WHERE {0} IS NOT NULL GROUP BY {0}
    ON CONFLICT (kind, word) DO UPDATE SET entries = entries + excluded.entries
"""
_NUMBER = "(SELECT number FROM words WHERE kind = '{0}' AND word = fresh.{0})"
_ENTER = (
    "INSERT INTO entries SELECT id, "  # noqa: S608 - ours
    + ", ".join(_NUMBER.format(kind) for kind in WORDS)
    + " FROM fresh"
)
_ADVANCE = """
    UPDATE state SET (position, hash) = (SELECT id, hash FROM fresh ORDER BY id DESC LIMIT 1)
    WHERE EXISTS (SELECT 1 FROM fresh)
"""
_ARCHIVE = """
    INSERT OR IGNORE INTO archived
    SELECT chains.number, sessions.number, fresh.id, 0 FROM fresh
    JOIN words AS chains ON chains.kind = 'chain' AND chains.word = archived_chain
    JOIN words AS sessions ON sessions.kind = 'session' AND sessions.word = archived_session
"""
_GONE = f"""
    SELECT id, {", ".join(WORDS)} FROM entries INDEXED BY by_session
    WHERE session = :session AND chain = :chain AND id > :done AND id < :before
    ORDER BY id LIMIT :most
"""  # noqa: S608 - ours


class Fed(NamedTuple):
    """The last event that is indexed, the ledger's last one, and whether there is more to do."""

    position: int
    end: int
    more: bool


def feed(connection: sqlite3.Connection) -> Fed:
    """Indexes the next events, or removes the next entries of an archived chain."""
    removed = _remove_archived(connection)
    count = 0 if removed else _enter_next(connection)
    (position,) = connection.execute("SELECT position FROM state").fetchone()
    (end,) = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
    (archived,) = connection.execute("SELECT EXISTS (SELECT 1 FROM archived)").fetchone()
    return Fed(position, end, count == PORTION or bool(archived) or removed)


def _enter_next(connection: sqlite3.Connection) -> int:
    """Enters the next events; returns how many."""
    connection.execute("DELETE FROM fresh")
    count = connection.execute(_READ, {"system": SYSTEM_KEY, "most": PORTION}).rowcount
    if count:
        for kind in WORDS:
            connection.execute(_COUNT.format(kind))
        for statement in (_ENTER, *ENTER_SPANS, _ARCHIVE, _ADVANCE):
            connection.execute(statement)
    return count


def _remove_archived(connection: sqlite3.Connection) -> bool:
    """Removes a portion of an archived chain's entries; returns whether there was such a chain."""
    found = connection.execute("SELECT session, chain, before, done FROM archived").fetchone()
    if found is None:
        return False
    values = dict(zip(("session", "chain", "before", "done"), found, strict=True))
    gone = connection.execute(_GONE, values | {"most": PORTION}).fetchall()
    connection.executemany("DELETE FROM entries WHERE id = ?", [row[:1] for row in gone])
    counts = Counter(number for row in gone for number in row[1:] if number is not None)
    connection.executemany(
        "UPDATE words SET entries = entries - ? WHERE number = ?",
        [(count, number) for number, count in counts.items()],
    )
    connection.executemany(
        "DELETE FROM words WHERE number = ? AND entries = 0", [(number,) for number in counts]
    )
    if len(gone) < PORTION:
        connection.execute("DELETE FROM archived WHERE chain = :chain", values)
    else:
        values["done"] = gone[-1][0]
        connection.execute("UPDATE archived SET done = :done WHERE chain = :chain", values)
    return True
