"""What is used of the driver, which has no types of its own."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class Row(Protocol):
    """A row of a result."""

    def __getitem__(self, column: str) -> Any: ...

    def values(self) -> Iterator[Any]:
        """All columns, in their order."""


class DatabaseConnection(Protocol):
    """What is used of the driver's connections."""

    async def execute(self, query: str, *values: Any, timeout: float | None = None) -> str:
        """Executes one statement, or without values any number."""

    async def fetch(self, query: str, *values: Any) -> Sequence[Row]:
        """All rows."""

    async def fetchrow(self, query: str, *values: Any) -> Row | None:
        """The first row."""

    async def fetchval(self, query: str, *values: Any) -> Any:
        """The first column of the first row; None without rows."""

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction, or a savepoint within one, which an exception of the block undoes."""
