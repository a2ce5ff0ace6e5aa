"""The index's file: made, checked against the ledger, and joined with it on one connection.

The index has words and ids, no texts of events. It can be lost at any time: what is missing or
wrong is made again from the ledger, so its commits are not synced.
"""

import sqlite3
import zlib
from pathlib import Path
from urllib.parse import quote

from orchestrator.ground.store.database_file import BUSY_TIMEOUT_MS, create_file
from orchestrator.record.search_index.spans import SPANS_SCHEMA

# The words by which an event is found. `chain` is the key of its session.
KINDS = ("session", "owner", "operation", "decision", "actor", "rule")
WORDS = ("chain", *KINDS)

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_NUMBERS = ", ".join(f"{kind} INTEGER" for kind in WORDS)
_INDEXES = "\n".join(
    f"CREATE INDEX by_{kind} ON entries ({kind}) WHERE {kind} IS NOT NULL;" for kind in KINDS
)
_SCHEMA = f"""
-- The last event that was indexed, and its hash, by which the ledger is recognized.
CREATE TABLE state (position INTEGER NOT NULL, hash TEXT NOT NULL);
INSERT INTO state VALUES (0, '');
-- Words by number, with how many entries have them.
CREATE TABLE words (
    number  INTEGER PRIMARY KEY,
    kind    TEXT NOT NULL,
    word    TEXT NOT NULL,
    entries INTEGER NOT NULL,
    UNIQUE (kind, word)
);
-- Events by id, with the numbers of their words.
CREATE TABLE entries (id INTEGER PRIMARY KEY, {_NUMBERS});
{_INDEXES}
{SPANS_SCHEMA}
-- Chains whose entries before an event are being removed: it records that they are archived. All
-- entries up to `done` have been looked at.
CREATE TABLE archived (
    chain   INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    before  INTEGER NOT NULL,
    done    INTEGER NOT NULL
);
"""  # noqa: S608 - ours
# Another schema has another number.
_VERSION = zlib.crc32(_SCHEMA.encode()) >> 1
_COLUMNS = ", ".join(WORDS)
# Events that are being indexed. `archived` is the session whose archiving the event records.
_FRESH = f"""
CREATE TABLE temp.fresh (
    id INTEGER PRIMARY KEY, hash, time, {_COLUMNS}, archived_chain, archived_session
)
"""
_FITS = """
    SELECT position = 0 OR EXISTS (
        SELECT 1 FROM events WHERE events.id = position AND events.hash = state.hash
    ) FROM state
"""


def open_index(path: Path, ledger: Path) -> sqlite3.Connection:
    """The index with the ledger attached; a new one if it is missing, damaged or another ledger's.

    Raises: sqlite3.Error, OSError.
    """
    try:
        connection = _open(path, ledger)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
    else:
        if _fits(connection):
            return connection
        connection.close()
    remove(path)
    return _open(path, ledger)


def open_without(ledger: Path) -> sqlite3.Connection:
    """An empty index in memory with the ledger attached. Raises: sqlite3.Error."""
    return _prepared(sqlite3.connect(":memory:", isolation_level=None, uri=True), ledger)


def remove(path: Path) -> None:
    """Removes the files of an index that no connection uses. Raises: OSError."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def is_damage(error: BaseException | None) -> bool:
    """Whether the file is at fault, and a new one would help."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def _open(path: Path, ledger: Path) -> sqlite3.Connection:
    create_file(path)
    return _prepared(sqlite3.connect(path, isolation_level=None, uri=True), ledger)


def _prepared(connection: sqlite3.Connection, ledger: Path) -> sqlite3.Connection:
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode = WAL")
        # A loss of power takes back the latest commits, and leaves the file whole.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            connection.executescript(f"BEGIN; {_SCHEMA}; PRAGMA user_version = {_VERSION}; COMMIT")
        uri = f"file:{quote(str(ledger.absolute()))}?mode=ro"
        connection.execute("ATTACH ? AS ledger", (uri,))
        connection.execute(_FRESH)
    except BaseException:
        connection.close()
        raise
    return connection


def _fits(connection: sqlite3.Connection) -> bool:
    """Whether it is an index of this version and of this ledger."""
    try:
        if connection.execute("PRAGMA user_version").fetchone() != (_VERSION,):
            return False
        return bool(connection.execute(_FITS).fetchone() == (1,))
    except sqlite3.DatabaseError as error:
        connection.close()
        if not is_damage(error):
            raise
        return False
