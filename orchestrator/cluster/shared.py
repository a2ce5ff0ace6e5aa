"""The database that a cluster shares, for what upper floors keep in it. Rows are theirs.

A room that keeps something of keys has two stores of it: rows in this node's database, which
commit with their events, and rows here. A change here is on record first, because no transaction
has both: what fails after that is on record, too.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.effect import Effect

if TYPE_CHECKING:  # nothing of a cluster is loaded without one
    from orchestrator.cluster.postgres.connection import DatabaseConnection

T = TypeVar("T")
Connection: TypeAlias = "DatabaseConnection"
# Puts one change on record; the effect commits with it. Raises: AuditUnavailableError, and others.
Write = Callable[[EventDraft, Effect], Awaitable[object]]
# Told by the database at each change of secrets and of hooks.
CHANNEL = "paddock_shared"


class SharedDatabase(Protocol):
    """What is used of the cluster's database. It need not be there: each call tries to reach it."""

    async def transaction(self, work: Callable[["Connection"], Awaitable[T]]) -> T:
        """The result of `work` in one transaction; an error of it undoes everything.

        `work` may be called again if the database has undone it. Raises: ClusterUnavailableError;
        then it may have been committed all the same.
        """

    def listening(
        self, channel: str, told: Callable[[], None]
    ) -> AbstractAsyncContextManager["Connection"]:
        """A connection of its own; `told` is called at each message, and when it has ended.

        Raises: ClusterUnavailableError, also for the block's errors of the database.
        """


def nothing(connection: object) -> None:
    """The effect on this node's database of a change that is made elsewhere."""


@asynccontextmanager
async def on_record(write: Write, draft: EventDraft) -> AsyncIterator[None]:
    """Puts a change on record that the block makes in the shared database.

    If the block fails, the reason is recorded, too. Raises: the errors of both.
    """
    await write(draft, nothing)
    try:
        yield
    except PaddockError as error:
        await write(draft._replace(decision=None, error=error.detail), nothing)
        raise


def can_be_stored(text: str) -> bool:
    """Whether PostgreSQL can keep it: it has no U+0000, and can be written as UTF-8."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
