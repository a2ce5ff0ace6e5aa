"""Messages that wait for a session's next run: stored at once, in order, and bounded."""

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from orchestrator.ground.errors import BusyError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, both, executing
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.state import session_rows
from orchestrator.state.session import Session

# Of one session.
MOST_QUEUED = 100
_MOST_BYTES = 1024 * 1024


class QueuedMessage(NamedTuple):
    """A user's message; `size` is what it takes in the database."""

    seq: int
    text: str
    size: int


class Queued(NamedTuple):
    """The number of the newest message, and how many wait."""

    seq: int
    waiting: int


class RunQueue:
    """The queues of all sessions."""

    def __init__(self, database: Database, recorder: Recorder) -> None:
        self._database = database
        self._recorder = recorder
        self._adding: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def waiting(self, session_key: str, after: int = 0) -> list[QueuedMessage]:
        """The messages with higher numbers, in order."""
        return await self._database.read(
            partial(waiting_rows, session_key=session_key, after=after)
        )

    async def add(self, principal: Principal, session: Session, texts: Sequence[str]) -> Queued:
        """Adds messages.

        Raises: BusyError if too many wait; the errors of `Recorder.check_room`, `Recorder.told` and
        `Session.check_live`; AuditUnavailableError.
        """
        session.check_live()
        self._recorder.check_room(session)
        kept = await self._recorder.cut(session, list(texts))
        rows = [json.dumps(text) for text in kept]
        size = sum(map(len, rows))
        lock = self._adding.setdefault(session.key, asyncio.Lock())
        async with lock:
            waiting = await self.waiting(session.key)
            count = len(waiting) + len(rows)
            if count > MOST_QUEUED or sum(each.size for each in waiting) + size > _MOST_BYTES:
                raise BusyError(
                    f"a session's queue holds at most {MOST_QUEUED} messages and {_MOST_BYTES} "
                    "bytes: run them, with send or render"
                )
            numbers: list[int] = []
            await self._recorder.record(
                session,
                EventDraft("turn.queue", actor=principal.name, args={"messages": kept}),
                both(_adding(session.key, rows, numbers), session_rows.counting(session.key, size)),
            )
            self._recorder.count(session, size)
        return Queued(numbers[-1], count)


def importing(session_key: str, texts: Sequence[str]) -> Effect:
    """Adds messages of a snapshot."""
    return _adding(session_key, [json.dumps(text) for text in texts], [])


def removing(session_key: str, until: int, size: int) -> Effect:
    """Removes messages that a run has taken, up to that number, of that size in all."""
    forget = executing(
        "DELETE FROM run_queue WHERE session_key = ? AND seq <= ?", (session_key, until)
    )
    return both(forget, session_rows.counting(session_key, -size))


def _adding(session_key: str, rows: Sequence[str], numbers: list[int]) -> Effect:
    """Adds rows; their numbers are put into `numbers`."""

    def effect(connection: sqlite3.Connection) -> None:
        numbers.clear()
        for row in rows:
            cursor = connection.execute(
                "INSERT INTO run_queue (session_key, message) VALUES (?, ?)", (session_key, row)
            )
            numbers.append(int(cursor.lastrowid or 0))

    return effect


def waiting_rows(
    connection: sqlite3.Connection, session_key: str, after: int = 0
) -> list[QueuedMessage]:
    """The messages of a session with higher numbers, in order."""
    rows = connection.execute(
        "SELECT seq, message FROM run_queue WHERE session_key = ? AND seq > ? ORDER BY seq",
        (session_key, after),
    )
    return [QueuedMessage(seq, json.loads(text), len(text)) for seq, text in rows]
