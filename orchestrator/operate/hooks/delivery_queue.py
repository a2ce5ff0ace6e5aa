"""The queue of one hook's messages: in this node's database, or in that of the cluster."""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeVar

from orchestrator.ground.store.database import Database
from orchestrator.operate.hooks import delivery_rows
from orchestrator.operate.hooks.delivery_rows import (
    Delivery,
    DeliveryCounts,
    DeliveryStatus,
    FailedTry,
    NewDelivery,
)

T = TypeVar("T")


class QueueLook(NamedTuple):
    """When the next message is due (None: not before some news), and how many there are."""

    due_at: float | None
    counts: DeliveryCounts


class DeliveryQueue(Protocol):
    """Messages of one hook. Of one session only the first that waits is due.

    Times are in seconds since 1970. Each method raises StoreError, or ClusterUnavailableError.
    """

    async def limit_due(self, latest: float) -> DeliveryCounts:
        """Moves due times that are later to that time, because the clock may have been set back."""

    async def enqueue(
        self, position: int, messages: Sequence[NewDelivery], now: float
    ) -> DeliveryCounts:
        """Stores messages, and that the record has been looked at up to there."""

    async def look(self, without: Collection[str], now: float) -> QueueLook:
        """What is there, except messages of the sessions `without`."""

    async def claim(
        self, without: Collection[str], most: int, now: float, again_at: float
    ) -> list[Delivery]:
        """Begins to try what is due; each is due again at `again_at`, if nobody settles it."""

    async def deliver(self, delivery: Delivery, now: float) -> DeliveryCounts:
        """Forgets a delivery that was made; the session's next one is due now."""

    async def postpone(self, failed: FailedTry, due_at: float) -> DeliveryCounts:
        """Stores that a try failed, and when the next one is due."""

    async def give_up(self, failed: FailedTry, now: float, kept_since: str) -> DeliveryCounts:
        """Keeps a delivery as undelivered; the session's next one is due."""

    async def try_again(
        self, delivery_id: str, now: float, kept_since: str
    ) -> tuple[Delivery, DeliveryCounts] | None:
        """Makes an undelivered message wait again, as if it were new; None if there is none."""

    async def page(
        self, status: DeliveryStatus | None, after: int, limit: int, kept_since: str
    ) -> list[Delivery]:
        """Deliveries in the order of the record; `status` None: all."""

    async def counts(self) -> DeliveryCounts:
        """How many there are."""

    async def clear(self) -> None:
        """Removes what this node has of a hook that is gone."""


class OwnQueue:
    """In this node's database, where the position in the record changes with it."""

    def __init__(self, database: Database, hook_id: str) -> None:
        self._database = database
        self._hook_id = hook_id

    async def limit_due(self, latest: float) -> DeliveryCounts:
        """As `DeliveryQueue.limit_due`."""
        return await self._write(lambda each: delivery_rows.limit_due(each, self._hook_id, latest))

    async def enqueue(
        self, position: int, messages: Sequence[NewDelivery], now: float
    ) -> DeliveryCounts:
        """As `DeliveryQueue.enqueue`."""
        return await self._write(
            lambda each: delivery_rows.enqueue(each, self._hook_id, position, messages, now)
        )

    async def look(self, without: Collection[str], now: float) -> QueueLook:
        """As `DeliveryQueue.look`."""

        def read(connection: sqlite3.Connection) -> QueueLook:
            due_at = delivery_rows.next_due(connection, self._hook_id, without)
            return QueueLook(due_at, delivery_rows.counts(connection, self._hook_id))

        return await self._database.read(read)

    async def claim(
        self, without: Collection[str], most: int, now: float, again_at: float
    ) -> list[Delivery]:
        """As `DeliveryQueue.claim`."""
        return await self._write(
            lambda each: delivery_rows.claim(each, self._hook_id, without, most, now, again_at)
        )

    async def deliver(self, delivery: Delivery, now: float) -> DeliveryCounts:
        """As `DeliveryQueue.deliver`."""
        return await self._write(lambda each: delivery_rows.deliver(each, delivery, now))

    async def postpone(self, failed: FailedTry, due_at: float) -> DeliveryCounts:
        """As `DeliveryQueue.postpone`."""
        return await self._write(lambda each: delivery_rows.postpone(each, failed, due_at))

    async def give_up(self, failed: FailedTry, now: float, kept_since: str) -> DeliveryCounts:
        """As `DeliveryQueue.give_up`."""
        return await self._write(lambda each: delivery_rows.give_up(each, failed, now, kept_since))

    async def try_again(
        self, delivery_id: str, now: float, kept_since: str
    ) -> tuple[Delivery, DeliveryCounts] | None:
        """As `DeliveryQueue.try_again`."""
        return await self._write(
            lambda each: delivery_rows.try_again(each, self._hook_id, delivery_id, now, kept_since)
        )

    async def page(
        self, status: DeliveryStatus | None, after: int, limit: int, kept_since: str
    ) -> list[Delivery]:
        """As `DeliveryQueue.page`."""
        return await self._database.browse(
            lambda each: delivery_rows.page(each, self._hook_id, status, after, limit, kept_since)
        )

    async def counts(self) -> DeliveryCounts:
        """As `DeliveryQueue.counts`."""
        return await self._database.read(lambda each: delivery_rows.counts(each, self._hook_id))

    async def clear(self) -> None:
        """As `DeliveryQueue.clear`, in portions."""
        while await self._write(lambda each: delivery_rows.clear(each, self._hook_id)):
            pass

    async def _write(self, step: Callable[[sqlite3.Connection], T]) -> T:
        return await self._database.write(step)
