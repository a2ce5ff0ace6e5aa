"""The audit ledger: one hash chain per session. Events are durable before they are reported."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.ground.events import EventDraft, members
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.writer import Batch, Head, Heads, Item, chain_head, last_id

# Limits the duration of a transaction, for which every other writer waits.
_MAX_BATCH = 1024
_STOPPING = "the audit ledger is stopping"

# The end of the run 1, 2, 3, … that has no gap.
_AGENT_HEAD = """
    SELECT min(number) FROM (
        SELECT 0 AS number UNION ALL
        SELECT agent_seq FROM events
        WHERE session_key = :key AND agent_boot_id = :boot AND agent_seq IS NOT NULL
    ) WHERE NOT EXISTS (
        SELECT 1 FROM events
        WHERE session_key = :key AND agent_boot_id = :boot AND agent_seq = number + 1
    )
"""

T = TypeVar("T")

# Called for each commit with its new events in order. None: it is unknown what was committed, so
# the database must be read.
OnCommit = Callable[[Sequence[Recorded] | None], None]


class Lag(NamedTuple):
    """The number of events that are not durable yet, and the age of the oldest (0.0: none)."""

    pending: int
    oldest_seconds: float


class _Pending(NamedTuple):
    item: Item
    recorded: asyncio.Future[Recorded]
    since: float


class _Written(NamedTuple):
    outcomes: list[Recorded | Exception]
    first_id: int
    last_id: int
    heads: dict[str, Head]


class Ledger:
    """Appends events in groups: all events that wait during a commit share the next one.

    There is one event loop and one ledger per database. Nothing else may write events.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._heads = Heads()
        self._pending: deque[_Pending] = deque()
        self._batch: list[_Pending] = []
        # Events that this ledger made durable, including an agent's repeated ones.
        self.committed = 0
        self._tasks = TaskScope("the writer of the ledger")
        self._writing = False
        self._closed = False
        # By session_key (None: any): one future for each waiting caller.
        self._waiters: dict[str | None, set[asyncio.Future[None]]] = {}
        self._listeners: list[OnCommit] = []

    def on_commit(self, listener: OnCommit) -> Callable[[], None]:
        """Calls it for each commit from now on; it may not raise. Returns how to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def append(self, draft: EventDraft, effect: Effect | None = None) -> Recorded:
        """Records the event, and returns when it is durable.

        `effect` runs in the writer's thread and commits together with the event, or neither does.
        An agent's event that is already recorded is returned as it was, without its effect. The
        event of a cancelled call is still recorded.

        Raises: EventError for a malformed draft; the errors of `effect`; AuditUnavailableError if
        nothing can be written.
        """
        if self._closed:
            raise AuditUnavailableError("the audit ledger is closed")
        item = Item(draft.session_key, members(draft), effect, draft.stop)
        loop = asyncio.get_running_loop()
        recorded: asyncio.Future[Recorded] = loop.create_future()
        self._pending.append(_Pending(item, recorded, loop.time()))
        if not self._writing:
            self._writing = True
            self._tasks.spawn(self._write_pending())
        return await recorded

    async def agent_head(self, session_key: str, boot_id: str) -> int:
        """The number up to which every event of that agent is recorded, 0 if there is none.

        Later ones may be recorded too, after one whose commit failed. The agent sends them all
        again, and no second copy is made.
        """

        def read(connection: sqlite3.Connection) -> int:
            (seq,) = connection.execute(
                _AGENT_HEAD, {"key": session_key, "boot": boot_id}
            ).fetchone()
            return int(seq)

        return await self._read(read)

    async def wait(self, session_key: str | None, after: int) -> int:
        """Waits for an event after that position, and returns the position of the end.

        Positions are `seq` of the session's chain, or `id` if `session_key` is None. Raises:
        AuditUnavailableError if the database can't be read.
        """
        while True:
            # Listens before it reads, so that no commit is missed in between.
            with self._listening(session_key) as changed:
                position = await self._position(session_key)
                if position > after:
                    return position
                await changed

    @property
    def end(self) -> int | None:
        """The `id` of the last event; None: not known."""
        return self._heads.last_id

    def lag(self) -> Lag:
        """How far the ledger is behind."""
        waiting = [*self._batch[:1], *self._pending]
        if not waiting:
            return Lag(0, 0.0)
        oldest = asyncio.get_running_loop().time() - waiting[0].since
        return Lag(len(self._batch) + len(self._pending), max(0.0, oldest))

    async def close(self) -> None:
        """Refuses new events and waits for pending ones; the database stays open."""
        self._closed = True
        await self._tasks.drain()

    async def _position(self, session_key: str | None) -> int:
        if session_key is None:
            known = self._heads.last_id
            return await self._read(last_id) if known is None else known
        head = self._heads.get(session_key)
        if head is None:
            head = await self._read(lambda conn: chain_head(conn, session_key))
        return head.seq

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                count = min(len(self._pending), _MAX_BATCH)
                self._batch = [self._pending.popleft() for _ in range(count)]
                await self._write(self._batch)
                self._batch = []
        finally:
            self._writing, self._batch = False, []
            _refuse(self._pending, _STOPPING)
            self._pending.clear()

    async def _write(self, batch: list[_Pending], *, reserve: bool = False) -> None:
        items = [pending.item for pending in batch]
        try:
            written = await self._database.write(
                lambda conn: _append_all(conn, self._heads, items), reserve=reserve
            )
        except StoreError as error:
            # It is unknown whether it was committed, so the next batch reads the heads again.
            self._heads.forget()
            self._tell(None)
            stops = [] if reserve else [pending for pending in batch if pending.item.stop]
            others = [pending for pending in batch if reserve or not pending.item.stop]
            _refuse(others, f"the audit ledger can't be written: {error}")
            if stops:
                await self._write(stops, reserve=True)
        except BaseException:
            self._heads.forget()
            _refuse(batch, _STOPPING)
            raise
        else:
            self._heads.advance(written.last_id, written.heads)
            self.committed += sum(isinstance(done, Recorded) for done in written.outcomes)
            _resolve(batch, written.outcomes)
            self._announce(written.heads)
            self._tell(
                [
                    done
                    for done in written.outcomes
                    # An event that an agent repeated was published before.
                    if isinstance(done, Recorded) and done.id >= written.first_id
                ]
            )

    def _tell(self, committed: Sequence[Recorded] | None) -> None:
        for listener in self._listeners:
            listener(committed)

    def _announce(self, heads: dict[str, Head]) -> None:
        for session_key in (*heads, None):
            for changed in self._waiters.get(session_key, ()):
                if not changed.done():
                    changed.set_result(None)

    @contextmanager
    def _listening(self, session_key: str | None) -> Iterator[asyncio.Future[None]]:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(session_key, set())
        waiters.add(changed)
        try:
            yield changed
        finally:
            waiters.remove(changed)
            if not waiters:
                del self._waiters[session_key]

    async def _read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._database.read(function)
        except StoreError as error:
            raise AuditUnavailableError(f"the audit ledger can't be read: {error}") from error


def _append_all(connection: sqlite3.Connection, heads: Heads, items: list[Item]) -> _Written:
    batch = Batch(connection, heads, alone=len(items) == 1)
    first_id = batch.last_id + 1
    outcomes = [batch.append(item) for item in items]
    batch.count()
    return _Written(outcomes, first_id, batch.last_id, batch.heads)


def _resolve(batch: list[_Pending], outcomes: list[Recorded | Exception]) -> None:
    for pending, outcome in zip(batch, outcomes, strict=True):
        # Already done: its caller was cancelled.
        if pending.recorded.done():
            continue
        if isinstance(outcome, Exception):
            pending.recorded.set_exception(outcome)
        else:
            pending.recorded.set_result(outcome)


def _refuse(batch: Iterable[_Pending], reason: str) -> None:
    for pending in batch:
        if not pending.recorded.done():
            pending.recorded.set_exception(AuditUnavailableError(reason))
