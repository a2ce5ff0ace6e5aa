"""How this node tells its cluster: by its outbox, in the transactions of its own database."""

from typing import Protocol

from orchestrator.cluster.messages import Body, Kind
from orchestrator.cluster.outbox import Outbox
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect


class Telling(Protocol):
    """What the store needs of the outbox."""

    def telling(self, kind: Kind, body: Body) -> Effect:
        """An effect that adds a message."""

    async def tell(self, kind: Kind, body: Body) -> None:
        """Adds a message that belongs to no event; it is durable when this returns."""

    async def delivered(self) -> None:
        """Waits until everything that was committed before has been delivered.

        Raises: ClusterUnavailableError.
        """


class OutboxTelling:
    """Tells by the outbox in the node's database."""

    def __init__(self, outbox: Outbox, database: Database) -> None:
        self._outbox = outbox
        self._database = database

    def telling(self, kind: Kind, body: Body) -> Effect:
        """As `Telling.telling`."""
        return self._outbox.putting(kind, body)

    async def tell(self, kind: Kind, body: Body) -> None:
        """As `Telling.tell`. Raises: StoreError."""
        # What gives back may use the disk's reserve.
        await self._database.write(self._outbox.putting(kind, body), reserve=True)

    async def delivered(self) -> None:
        """As `Telling.delivered`."""
        await self._outbox.delivered()
