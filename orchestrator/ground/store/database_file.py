"""The database's file: created, connected to, and migrated to the newest schema."""

import os
import re
import sqlite3
from collections.abc import Container
from contextlib import closing
from pathlib import Path

from orchestrator.ground.file_handles import opened

MIGRATIONS = Path(__file__).with_name("migrations")
_VERSIONS = (
    "CREATE TABLE IF NOT EXISTS schema_version"
    " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
)
_MIGRATION_NAME = re.compile(r"(\d{4})_\w+\.sql")
# Another process, such as a backup or a shell, may lock the file for a moment.
BUSY_TIMEOUT_MS = 5000


class StoreError(Exception):
    """The database can't be opened, read or written. The message is one sentence."""


def reason(error: OSError | sqlite3.Error) -> str:
    """The error in words. While SQLite opens a file, it reports a full disk as an I/O error."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return f"{error}: the disk is full, or it fails" if code == sqlite3.SQLITE_IOERR else str(error)


def create_file(path: Path) -> None:
    """Creates the file for its owner only; SQLite gives its mode to -wal and -shm."""
    with opened(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC) as descriptor:
        os.fchmod(descriptor, 0o600)


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection without transactions of its own. Raises: sqlite3.Error."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            # Leave no deleted or overwritten data in the file.
            connection.execute("PRAGMA secure_delete = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, path: Path, directory: Path) -> None:
    """Applies the numbered files that the database has not seen, each in one transaction.

    Raises: StoreError, also for a file that a newer Paddock wrote.
    """
    connection.execute(_VERSIONS)
    seen = {version for (version,) in connection.execute("SELECT version FROM schema_version")}
    files = _migration_files(directory)
    newest = max(files, default=0)
    if max(seen, default=0) > newest:
        raise StoreError(
            f"{path}: has schema {max(seen)}, but this Paddock knows schemas up to {newest}:"
            " run the version that wrote it"
        )
    for version, file in files.items():
        if version not in seen:
            _apply(connection, version, file)


def migrate_file(path: Path, migrations: Path = MIGRATIONS) -> None:
    """Migrates a database that no process uses. It blocks. Raises: StoreError."""
    try:
        with closing(connect(path, read_only=False)) as connection:
            migrate(connection, path, migrations)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error


def build_schema(connection: sqlite3.Connection, versions: Container[int]) -> None:
    """Makes the schema of these migrations in an empty database. Raises: StoreError."""
    connection.execute(_VERSIONS)
    for version, file in _migration_files(MIGRATIONS).items():
        if version in versions:
            _apply(connection, version, file)


def newest_schema() -> int:
    """The number of the newest schema that this Paddock knows."""
    return max(_migration_files(MIGRATIONS))


def _migration_files(directory: Path) -> dict[int, Path]:
    """The files by their numbers, in order; a number may be unused.

    Raises: StoreError for two files with the same number.
    """
    files: dict[int, Path] = {}
    for file in sorted(directory.iterdir()):
        named = _MIGRATION_NAME.fullmatch(file.name)
        if named is None:
            continue
        version = int(named[1])
        if version in files:
            raise StoreError(f"{file}: {files[version].name} has the same number")
        files[version] = file
    return files


def _apply(connection: sqlite3.Connection, version: int, file: Path) -> None:
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{file.read_text(encoding='utf-8')}")
        connection.execute(
            "INSERT INTO schema_version VALUES (?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
            (version, file.stem),
        )
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise StoreError(f"migration {file.name}: {error}") from error
