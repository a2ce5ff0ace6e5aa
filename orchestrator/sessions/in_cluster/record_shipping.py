"""Copies chains of sessions to the cluster, behind them: at least once, and each event in order.

Up to where a chain is there is stored with its session. What a kill has left is found at the next
start.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from orchestrator.cluster.copies import (
    MOST_EVENT_BYTES,
    MOST_EVENTS,
    ShippedEvent,
    ShippedRecords,
)
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session

log = logging.getLogger(__name__)

# What is recorded within this time is copied together, so that a busy session costs few commits.
_GATHER_SECONDS = 0.2
# Seconds between two tries while the cluster does not answer, doubled up to the longest.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_ROUND_SECONDS = 120.0
# How long an end waits for its copy: the record of the stop is durable here already.
_END_SECONDS = 2.0
_EVENTS = """
    SELECT session_key, seq, body, prev_hash, events.hash
    FROM events JOIN sessions ON sessions.key = session_key
    WHERE session_key = ? AND seq > shipped_to ORDER BY seq LIMIT ?
"""
_BEHIND = """
    SELECT key FROM sessions WHERE shipped_to IS NOT NULL AND EXISTS
    (SELECT 1 FROM events WHERE session_key = key AND seq > shipped_to)
"""


class _Portion(NamedTuple):
    """Events, and the keys of the sessions that have more."""

    events: list[ShippedEvent]
    more: list[str]


class RecordShipping:
    """Of this node. It begins with `start`, and until then nothing but `ship` copies anything."""

    def __init__(
        self, database: Database, ledger: Ledger, sessions: Registry, store: ShippedRecords
    ) -> None:
        self._database = database
        self._registry = sessions
        self._store = store
        # Keys of sessions of which there may be something to copy, the oldest first.
        self._behind: dict[str, None] = {}
        self._unknown = True
        # Whether the last try of the task has failed.
        self._away = False
        self._news = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None
        ledger.on_commit(self._committed)

    def start(self, tasks: Tasks) -> None:
        """Begins to copy, first what an earlier run has left."""
        self._news.set()
        self._task = tasks.start(TaskName.SHIPPING, self._run, rounds=self._rounds)

    async def close(self) -> None:
        """Stops; the next start copies the rest."""
        if self._task is not None:
            await self._task.close()

    async def begun(self, session: Session) -> None:
        """Copies the beginning of a session whose level promises that, before it is answered.

        Raises: ClusterUnavailableError, StoreError; then it must not begin.
        """
        if not session.ships:
            return
        if session.level.durability == "cluster":
            await self._ship([session.key])
        self._behind[session.key] = None
        self._news.set()

    async def ended(self, session: Session) -> None:
        """Copies the end of such a session, or leaves that to the task: an end waits for nothing.

        It waits a short time for a cluster that answers.
        """
        if session.level.durability != "cluster" or not session.ships or self._away:
            return
        with suppress(ClusterUnavailableError, StoreError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self.ship(session.key)

    async def ship(self, session_key: str) -> None:
        """Copies all of the chain as it is now. Raises: ClusterUnavailableError, StoreError."""
        while await self._ship([session_key]):
            pass

    def _committed(self, events: Sequence[Recorded] | None) -> None:
        if events is None:
            self._unknown = True
        for event in events or ():
            session = self._registry.by_key(event.session_key)
            ships = session is not None and session.ships
            if ships or event.operation == "session.arrived":
                self._behind[event.session_key] = None
        if self._behind or self._unknown:
            self._news.set()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._news.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._news.clear()
            try:
                with self._rounds.round():
                    await self._ship_all()
            except ClusterUnavailableError as error:
                log.debug("chains are copied to the cluster later: %s", error.detail)
                self._away = True
                self._news.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                pause, self._away = _FIRST_PAUSE, False

    async def _ship_all(self) -> None:
        """Copies until nothing is left. Raises: ClusterUnavailableError, StoreError."""
        if self._unknown:
            found = await self._database.browse(_behind)
            self._behind |= dict.fromkeys(found)
            self._unknown = False
        while self._behind:
            some = list(self._behind)[:MOST_EVENTS]
            for key in some:
                del self._behind[key]
            try:
                more = await self._ship(some)
            except BaseException:
                self._behind |= dict.fromkeys(some)
                raise
            self._behind |= dict.fromkeys(more)

    async def _ship(self, keys: Iterable[str]) -> list[str]:
        """Copies one portion; the keys of the sessions of which there is more."""
        portion = await self._database.read(partial(_portion, keys=list(keys)))
        if portion.events:
            await self._store.ship(portion.events)
            await self._database.write(partial(_advance, events=portion.events))
        return portion.more


def _behind(connection: sqlite3.Connection) -> list[str]:
    return [key for (key,) in connection.execute(_BEHIND)]


def _portion(connection: sqlite3.Connection, keys: Sequence[str]) -> _Portion:
    events: list[ShippedEvent] = []
    more: list[str] = []
    room = MOST_EVENT_BYTES
    for key in keys:
        left = MOST_EVENTS - len(events)
        if left <= 0 or room <= 0:
            more.append(key)
            continue
        taken = 0
        for row in connection.execute(_EVENTS, (key, left)):
            event = ShippedEvent(*row)
            events.append(event)
            room -= len(event.body)
            taken += 1
            if room <= 0:
                break
        if taken == left or room <= 0:
            more.append(key)
    return _Portion(events, more)


def _advance(connection: sqlite3.Connection, events: Iterable[ShippedEvent]) -> None:
    last = {event.session_key: event.seq for event in events}
    connection.executemany(
        "UPDATE sessions SET shipped_to = max(shipped_to, ?) WHERE key = ?",
        [(seq, key) for key, seq in last.items()],
    )
