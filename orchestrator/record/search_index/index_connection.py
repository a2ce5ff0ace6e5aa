"""The connection to the index, opened at its first use. One thread uses it; every call blocks."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from orchestrator.ground.store.database import in_transaction
from orchestrator.ground.store.database_file import StoreError, reason
from orchestrator.record.search_index import index_file
from orchestrator.record.search_index.feed import Fed, feed

T = TypeVar("T")


class IndexConnection:
    """If the file can't be used, searches have an empty index, which nothing is fed to."""

    def __init__(self, path: Path, ledger: Path) -> None:
        self._path = path
        self._ledger = ledger
        self._connection: sqlite3.Connection | None = None
        # Why the file can't be used.
        self._trouble: str | None = None

    def feed(self) -> Fed:
        """Feeds a portion; tries the file again if it could not be used. Raises: StoreError."""
        if self._trouble is not None:
            self.close()
        connection = self._opened()
        if self._trouble is not None:
            raise StoreError(self._trouble)
        return in_transaction(connection, "BEGIN", feed)

    def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `function`, in a transaction of its own. Raises: StoreError."""
        return in_transaction(self._opened(), "BEGIN", function)

    def discard(self) -> None:
        """Removes the file; the next call makes a new one. Raises: StoreError."""
        self.close()
        try:
            index_file.remove(self._path)
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Closes the connection; the next call opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self._trouble = None
        try:
            return index_file.open_index(self._path, self._ledger)
        except (OSError, sqlite3.Error) as error:
            self._trouble = f"{self._path}: {reason(error)}"
        try:
            return index_file.open_without(self._ledger)
        except sqlite3.Error as error:
            raise StoreError(f"the database can't be used: {error}") from error
