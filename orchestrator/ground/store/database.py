"""SQLite with one writer and two readers, each a connection in its own thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from orchestrator.ground.round_robin import Queue, asker
from orchestrator.ground.store.database_file import (
    BUSY_TIMEOUT_MS,
    MIGRATIONS,
    StoreError,
    connect,
    create_file,
    migrate,
    reason,
)
from orchestrator.ground.store.room import Room
from orchestrator.ground.threads import settle_with

T = TypeVar("T")

# A disk that hangs blocks one of the threads, but not its callers.
_WRITE_SECONDS = 15.0
_READ_SECONDS = 30.0
# Callers that browse records also wait for the slot of their queue.
_BROWSE_SECONDS = 120.0


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
        self._browsing = Queue()

    @classmethod
    async def open(cls, path: Path, migrations: Path = MIGRATIONS) -> "Database":
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
        return await in_time(
            self._writer.transaction("BEGIN IMMEDIATE", function, before), _WRITE_SECONDS
        )

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `function` on one consistent view and returns its result. Raises: StoreError.

        It is for reads that sessions wait for: they must be quick, and no long read may delay them.
        """
        return await in_time(self._reader.transaction("BEGIN", function), _READ_SECONDS)

    async def browse(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Like `read`, for clients that look through any number of records any number of times.

        Callers are served round robin (see `round_robin.asking`), so `function` should read one
        page and no more.
        """
        return await in_time(self._browse(function), _BROWSE_SECONDS)

    async def _browse(self, function: Callable[[sqlite3.Connection], T]) -> T:
        async with self._browsing.slot(asker()):
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

        return await in_time(self._writer.run(work), _BROWSE_SECONDS)

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
            return in_transaction(connection, begin, function)

        return await self.run(work)

    def open(self, path: Path, migrations: Path | None) -> None:
        """Opens the writer's connection, or (without migrations) the reader's."""
        try:
            if migrations is not None:
                create_file(path)
            self._connection = connect(path, read_only=migrations is None)
            if migrations is not None:
                migrate(self._connection, path, migrations)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path}: {reason(error)}") from error

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
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
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


async def in_time(work: Awaitable[T], seconds: float) -> T:
    """Raises StoreError if `work` takes longer, and the errors of `work`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise StoreError(f"the disk did not answer within {seconds:g} s") from None


def in_transaction(
    connection: sqlite3.Connection, begin: str, function: Callable[[sqlite3.Connection], T]
) -> T:
    """Runs `function` in a transaction of the connection, which it rolls back if that raises.

    Raises: StoreError if the file can't be used; the errors of `function`.
    """
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


class _Job(NamedTuple):
    function: Callable[[], Any]
    outcome: asyncio.Future[Any]


class Worker:
    """A thread whose results go straight to the event loop.

    An executor of the standard library does the same by way of a second future with locks of its
    own, which costs more than most of the functions. The thread ends with `stop`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    async def run(self, function: Callable[[], T]) -> T:
        """The result of `function`, after those of earlier calls.

        A call that is cancelled before it begins has no effect. Raises: the errors of `function`;
        RuntimeError after `stop`.
        """
        if self._stopped:
            raise RuntimeError(f"{self._name} was stopped")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(function, outcome))
        return await outcome

    def stop(self) -> None:
        """Ends the thread after the calls so far."""
        self._stopped = True
        self._jobs.put(None)

    def _work(self) -> None:
        # While the thread waits, it holds nothing of an earlier call.
        while _do(self._jobs.get()):
            pass


def _do(job: _Job | None) -> bool:
    """Runs a job; returns False if there is none any more."""
    if job is None:
        return False
    if not job.outcome.cancelled():
        settle_with(job.outcome, job.function)
    return True
