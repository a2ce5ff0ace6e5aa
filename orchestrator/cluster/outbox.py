"""The outbox: what this node tells its cluster, kept from the commit until it is delivered.

A message is written in the transaction of its event, so that neither is there without the other.
It is delivered at least once, in order, whenever the control plane ends. Without a cluster the
table stays empty, and nothing runs.
"""

import asyncio
import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from orchestrator.cluster.base import Message, MessageDelivery
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks

# Messages of one delivery, which are also all that are in memory.
BATCH = 100
# Seconds between two tries while the cluster does not answer, doubled up to the longest.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
# For one batch. A database that hangs is given up earlier by the delivery itself.
_ROUND_SECONDS = 120.0
_STOPPED = "nothing is delivered to the cluster at the moment: try again"


class _Found(NamedTuple):
    """The first messages, and how many there are."""

    batch: list[Message]
    waiting: int


class Outbox:
    """Messages for the cluster. `start` it with what delivers them."""

    def __init__(self, database: Database) -> None:
        """It belongs to the running event loop."""
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        # A caller of `delivered` waits, so the next try begins at once.
        self._wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None
        self._idle = False
        # The number of messages that are not delivered yet, for the metrics.
        self.waiting = 0

    def putting(self, kind: str, body: Mapping[str, Any]) -> Effect:
        """An effect that adds a message, which is delivered after the commit."""
        text = json.dumps(body)

        def apply(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO outbox (kind, body) VALUES (?, ?)", (kind, text))
            # Before the commit, but what it wakes looks in the same thread, which commits first.
            self._loop.call_soon_threadsafe(self._told)

        return apply

    def _told(self) -> None:
        self.waiting += 1
        self._idle = False
        self._news.set()

    def start(self, delivery: MessageDelivery, tasks: Tasks) -> None:
        """Begins to deliver, first what an earlier run has left."""
        self._task = tasks.start(TaskName.OUTBOX, partial(self._run, delivery), rounds=self._rounds)

    async def close(self) -> None:
        """Stops; the next start delivers the rest."""
        task, self._task = self._task, None
        if task is not None:
            await task.close()
        _settle(self._waiters, ClusterUnavailableError(_STOPPED))

    async def delivered(self) -> None:
        """Waits until everything that was committed before has been delivered.

        Raises: ClusterUnavailableError if a try that begins now fails.
        """
        if self._task is None:
            raise ClusterUnavailableError(_STOPPED)
        if self._idle:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        self._news.set()
        self._wanted.set()
        await waiter

    async def _run(self, delivery: MessageDelivery) -> None:
        """Delivers until it is cancelled. Raises: StoreError, and errors of the delivery."""
        pause = _FIRST_PAUSE
        while True:
            self._wanted.clear()
            waiters, self._waiters = self._waiters, []
            try:
                with self._rounds.round():
                    await self._deliver_all(delivery)
            except ClusterUnavailableError as error:
                _settle(waiters, error)
                await self._rest(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            except BaseException:
                _settle(waiters, ClusterUnavailableError(_STOPPED))
                raise
            pause = _FIRST_PAUSE
            _settle(waiters)
            await self._news.wait()

    async def _deliver_all(self, delivery: MessageDelivery) -> None:
        """Delivers until nothing is left, or as much as there was at first."""
        self._news.clear()
        found = await self._look(0)
        left = found.waiting
        while found.batch:
            await delivery.deliver(found.batch)
            FaultPoint.OUTBOX_DELIVERED.reached()
            left -= len(found.batch)
            found = await self._look(found.batch[-1].id)
            if left <= 0 and found.batch:
                self._news.set()
                return

    async def _look(self, delivered: int) -> _Found:
        """Forgets what was delivered, up to that id, and reads what is next.

        In the writer's thread, so that it sees each commit that it was woken for. Raises:
        StoreError.
        """
        found = await self._database.write(partial(_next, delivered=delivered), reserve=True)
        self.waiting = found.waiting
        self._idle = not found.batch and not self._news.is_set()
        return found

    async def _rest(self, seconds: float) -> None:
        """Waits before the next try, or until somebody waits for one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()


def _settle(
    waiters: Iterable[asyncio.Future[None]], error: ClusterUnavailableError | None = None
) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(ClusterUnavailableError(error.detail, **error.fields))


def _next(connection: sqlite3.Connection, delivered: int) -> _Found:
    if delivered:
        connection.execute("DELETE FROM outbox WHERE id <= ?", (delivered,))
    rows = connection.execute("SELECT id, kind, body FROM outbox ORDER BY id LIMIT ?", (BATCH,))
    batch = [Message(number, kind, json.loads(body)) for number, kind, body in rows]
    if not batch:
        return _Found(batch, 0)
    # Ids have no gaps, because a transaction that is undone gives back its own.
    (last,) = connection.execute("SELECT max(id) FROM outbox").fetchone()
    return _Found(batch, last - batch[0].id + 1)
