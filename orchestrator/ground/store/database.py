"""SQLite with one writer and two readers, each a connection in its own thread."""

import asyncio
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable, Container
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from orchestrator.ground.round_robin import Queue, asker
from orchestrator.ground.store.room import Room
from orchestrator.ground.store.worker import Worker

T = TypeVar("T")

_MIGRATIONS = Path(__file__).with_name("migrations")
_VERSIONS = (
    "CREATE TABLE IF NOT EXISTS schema_version"
    " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
)
_MIGRATION_NAME = re.compile(r"(\d{4})_\w+\.sql")
# For moments in which another process, such as a backup or a shell, locks the file.
_BUSY_TIMEOUT_MS = 5000
# A disk that hangs blocks one of the threads, but not its callers.
_WRITE_SECONDS = 15.0
_READ_SECONDS = 30.0
# Callers that browse records also wait for a turn.
_BROWSE_SECONDS = 120.0


class StoreError(Exception):
    """The database can't be opened, read or written. The message is one sentence."""


class Database:
    """A SQLite file (WAL, every commit synced) for one process.

    Functions passed to `read` and `write` run in a thread, get its connection, and must return
    values, not cursors. They may not commit: each is one transaction.
    """

    def __init__(self) -> None:
        """Creates a closed database; use `open`."""
        self._writer = _Access("paddock-db-writer")
        self._room: Room | None = None
        self._reader = _Access("paddock-db-reader")
        self._browser = _Access("paddock-db-browser")
        self._turns = Queue()

    @classmethod
    async def open(cls, path: Path, migrations: Path = _MIGRATIONS) -> "Database":
        """Opens the file, creating it (0600) if it is missing, and migrates its schema.

        Raises: StoreError, also if a newer Paddock wrote the file.
        """
        database = cls()
        try:
            await database._writer.run(lambda: database._writer.open(path, migrations))
            database._room = Room(path.with_name(path.name + "-wal"))
            await database._reader.run(lambda: database._reader.open(path, None))
            await database._browser.run(lambda: database._browser.open(path, None))
        except BaseException:
            await database.close()
            raise
        return database

    async def write(
        self, function: Callable[[sqlite3.Connection], T], *, reserve: bool = False
    ) -> T:
        """Runs `function` in a transaction and returns its result once the changes are durable.

        Nothing is stored if it raises. With `reserve`, it may use the disk space reserved for
        recording stops on a full disk. A call that is cancelled or times out may still take effect.
        Raises: StoreError if the file can't be written; sqlite3.IntegrityError and the errors of
        `function` unchanged.
        """
        before = None if reserve else self._check_room
        return await _in_time(
            self._writer.transaction("BEGIN IMMEDIATE", function, before), _WRITE_SECONDS
        )

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `function` on one consistent view and returns its result. Raises: StoreError.

        It is for reads that sessions wait for: they must be quick, and no long read may delay them.
        """
        return await _in_time(self._reader.transaction("BEGIN", function), _READ_SECONDS)

    async def browse(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Like `read`, for clients that look through any number of records any number of times.

        Callers take turns, see `rounds.asking`, so `function` should read one page and no more.
        """
        return await _in_time(self._browse(function), _BROWSE_SECONDS)

    async def _browse(self, function: Callable[[sqlite3.Connection], T]) -> T:
        async with self._turns.turn(asker()):
            return await self._browser.transaction("BEGIN", function)

    def _check_room(self) -> None:
        """Runs in the thread. Raises: StoreError."""
        try:
            kept = self._room is None or self._room.kept()
        except OSError as error:
            raise StoreError(f"the database can't be used: {error.strerror}") from error
        if not kept:
            raise StoreError("the disk is full: the rest is reserved for recording stops")

    async def scrub(self) -> bool:
        """Empties the write-ahead log, so that deleted data is in no file any more.

        Takes its reserved space again at once, before any other writer can. Returns False, without
        waiting, if a reader prevents it for now. Raises: StoreError.
        """

        def work() -> bool:
            emptied = self._writer.scrub()
            if self._room is not None:
                with suppress(OSError):  # the next write reports it
                    self._room.kept()
            return emptied

        return await _in_time(self._writer.run(work), _BROWSE_SECONDS)

    async def close(self) -> None:
        """Finishes running calls and closes the file. Closing again does nothing."""
        await self._browser.close()
        await self._reader.close()
        await self._writer.close()


class _Access:
    """One thread and the connection that only this thread uses."""

    def __init__(self, name: str) -> None:
        self._thread = Worker(name)
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        if self._closed:
            raise StoreError("the database is closed")
        return await self._thread.run(function)

    async def transaction(
        self,
        begin: str,
        function: Callable[[sqlite3.Connection], T],
        before: Callable[[], None] | None = None,
    ) -> T:
        def work() -> T:
            connection = self._connected()
            if before is not None:
                before()
            return _transaction(connection, begin, function)

        return await self.run(work)

    def open(self, path: Path, migrations: Path | None) -> None:
        """Opens the writer's connection, or (without migrations) the reader's."""
        try:
            if migrations is not None:
                _create_file(path)
            self._connection = _connect(path, read_only=migrations is None)
            if migrations is not None:
                _migrate(self._connection, path, migrations)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path}: {_reason(error)}") from error

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # As at the start, there is nothing else to do, so the caller waits for the disk.
        try:
            await self._thread.run(self._disconnect)
        finally:
            self._thread.stop()

    def scrub(self) -> bool:
        """Runs in the thread. Raises: StoreError."""
        connection = self._connected()
        try:
            connection.execute("PRAGMA busy_timeout = 0")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        except sqlite3.Error as error:
            raise StoreError(f"the database can't be used: {error}") from error
        return not busy

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError("the database is closed")
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


async def _in_time(work: Awaitable[T], seconds: float) -> T:
    """Raises StoreError if `work` takes longer, and the errors of `work`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise StoreError(f"the disk did not answer within {seconds:g} s") from None


def _transaction(
    connection: sqlite3.Connection, begin: str, function: Callable[[sqlite3.Connection], T]
) -> T:
    try:
        connection.execute(begin)
        result = function(connection)
        connection.execute("COMMIT")
    except BaseException as error:
        # After some failures, such as a full disk, the transaction has already ended.
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
            raise StoreError(f"the database can't be used: {error}") from error
        raise
    return result


def _reason(error: OSError | sqlite3.Error) -> str:
    """SQLite calls a full disk an input/output error while it opens a file."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return f"{error}: the disk is full, or it fails" if code == sqlite3.SQLITE_IOERR else str(error)


def _create_file(path: Path) -> None:
    """Creates the file for its owner only; SQLite gives its mode to -wal and -shm."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    try:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
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


def _migrate(connection: sqlite3.Connection, path: Path, directory: Path) -> None:
    """Applies the numbered files that the database has not seen, each in one transaction."""
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


def migrate_file(path: Path, migrations: Path = _MIGRATIONS) -> None:
    """Migrates a database that no process uses. It blocks. Raises: StoreError."""
    try:
        with closing(_connect(path, read_only=False)) as connection:
            _migrate(connection, path, migrations)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error


def build_schema(connection: sqlite3.Connection, versions: Container[int]) -> None:
    """Makes the schema of these migrations in an empty database. Raises: StoreError."""
    connection.execute(_VERSIONS)
    for version, file in _migration_files(_MIGRATIONS).items():
        if version in versions:
            _apply(connection, version, file)


def newest_schema() -> int:
    """The number of the newest schema that this Paddock knows."""
    return max(_migration_files(_MIGRATIONS))


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
