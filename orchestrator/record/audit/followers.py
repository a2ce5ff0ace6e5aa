"""Followers of the audit stream: HTTP streams, and other parts that act on events.

All of them share each commit, so an event is serialized and parsed at most once. A follower begins
at a position, reads the later events from the ledger, and then receives each commit.
"""

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from orchestrator.ground.events import SYSTEM_KEY
from orchestrator.ground.store.database import Database
from orchestrator.record.audit import query
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.query import Selection
from orchestrator.record.audit.recorded_event import Recorded

_PAGE = 100
# The buffer of a busy follower. All followers share the events themselves.
_MOST_WAITING = 256
_MOST_WAITING_BYTES = 1024 * 1024
_MOST_OWNERS = 10_000


class CatchUp(NamedTuple):
    """Events from the ledger.

    `end` is the position up to which nothing is left to read; `more`: there may be some behind it.
    """

    events: list[Recorded]
    end: int
    more: bool


class Follower:
    """Reads one selection of events in order from any position, without gaps or repetitions.

    Commits wait in a bounded queue. If the queue is full, if it is unknown what was committed, or
    if a read failed, the follower empties the queue and reads the ledger from its position on. A
    slow reader therefore never causes a gap. Only chains that were archived before they were read
    are missing, because the ledger no longer has them.

    To continue later, for example after a restart, keep the position of the last processed event
    (`Selection.position`) and follow again from there.
    """

    def __init__(
        self,
        read: Callable[[int], Awaitable[CatchUp]],
        after: int,
        over: asyncio.Future[None] | None = None,
    ) -> None:
        """`read` returns a page of the ledger after a position.

        `over` is done when no more events will come; None: never.
        """
        self._read = read
        self._position = after
        self._over = over
        # Positions and their events; None for an event that is not in the selection.
        self._waiting: deque[tuple[int, Recorded | None]] = deque()
        self._waiting_bytes = 0
        # Whether everything after the position is in `_waiting`.
        self._complete = False
        self._news = asyncio.Event()
        if over is not None:
            over.add_done_callback(self._wake)

    async def next(self) -> list[Recorded]:
        """Waits for the next events; returns none when the stream is over. May be cancelled.

        Raises: StoreError, AuditUnavailableError. The call can be repeated without losing events.
        """
        while True:
            # First, so that news during the read of the ledger are not missed.
            self._news.clear()
            over = self._over is not None and self._over.done()
            if over or not self._complete:
                events = await self._catch_up()
                if events or (over and self._complete):
                    return events
                if not self._complete:  # there is more, of which the page had none
                    continue
            events = self._take()
            if events:
                return events
            await self._news.wait()

    def offer(self, position: int, event: Recorded | None) -> None:
        """Receives a committed event; None: one outside this follower's selection."""
        if not self._complete:
            return
        if event is None:
            # It only advances the position, so that the ledger need not be searched from further
            # back.
            if self._waiting and self._waiting[-1][1] is None:
                self._waiting.pop()
            self._waiting.append((position, None))
            return
        self._waiting.append((position, event))
        self._waiting_bytes += len(event.text)
        if len(self._waiting) > _MOST_WAITING or self._waiting_bytes > _MOST_WAITING_BYTES:
            self.miss()
        self._news.set()

    def miss(self) -> None:
        """Notes that a commit may have been missed: the ledger has it."""
        self._complete = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._news.set()

    def close(self) -> None:
        """Ends the follower."""
        self.miss()
        if self._over is not None:
            self._over.remove_done_callback(self._wake)

    def _wake(self, _over: object) -> None:
        self._news.set()

    async def _catch_up(self) -> list[Recorded]:
        # Set before the read: events committed meanwhile are offered, and skipped if they were
        # read.
        self._complete = True
        try:
            page = await self._read(self._position)
        except BaseException:
            self.miss()
            raise
        if page.more:
            self.miss()
        self._position = page.end
        return page.events

    def _take(self) -> list[Recorded]:
        events: list[Recorded] = []
        while self._waiting and len(events) < _PAGE:
            position, event = self._waiting.popleft()
            self._waiting_bytes -= 0 if event is None else len(event.text)
            if position > self._position:
                self._position = position
                if event is not None:
                    events.append(event)
        return events


class Followers:
    """All followers of a ledger. Each commit is offered to those that want it."""

    def __init__(
        self, ledger: Ledger, database: Database, owner_of: Callable[[str], str | None]
    ) -> None:
        """`owner_of` returns the owner of a session by its key, if known."""
        self._database = database
        self._ledger = ledger
        self._owner_of = owner_of
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._of_sessions: dict[str, dict[Follower, Selection]] = {}
        self._of_all: dict[Follower, Selection] = {}
        # The `id` of the next commit's first event, unless something was committed unnoticed.
        self._next_id = 0
        ledger.on_commit(self._publish)

    @contextmanager
    def follow(
        self, wanted: Selection, after: int, over: asyncio.Future[None] | None = None
    ) -> Iterator[Follower]:
        """Follows the selection after a position (see `Selection.position`).

        A selection that is `over`, such as a session, is read completely and then ends.
        """
        follower = Follower(lambda position: self._read(wanted, position), after, over)
        if wanted.session_key is None:
            followers = self._of_all
        else:
            followers = self._of_sessions.setdefault(wanted.session_key, {})
        followers[follower] = wanted
        try:
            yield follower
        finally:
            follower.close()
            del followers[follower]
            if not followers and wanted.session_key is not None:
                self._of_sessions.pop(wanted.session_key, None)

    async def _read(self, wanted: Selection, position: int) -> CatchUp:
        """Raises: StoreError, AuditUnavailableError."""
        end = position
        if wanted.filters:
            # If none of the events up to here is wanted, it continues after them.
            end = max(end, await self._ledger.wait(wanted.session_key, -1))
        found = await query.recorded(self._database, wanted, position, _PAGE)
        if found.next is not None:
            return CatchUp(found.items, found.next, more=True)
        if found.items:
            end = max(end, wanted.position(found.items[-1]))
        return CatchUp(found.items, end, more=False)

    def _publish(self, committed: Sequence[Recorded] | None) -> None:
        """Publishes a commit; None: it is unknown what was committed."""
        if committed is None:
            self._miss()
            return
        if committed and committed[0].id != self._next_id:
            self._miss()
        for event in committed:
            self._next_id = event.id + 1
            for follower, wanted in self._of_sessions.get(event.session_key, {}).items():
                follower.offer(event.seq, event if _is_wanted(wanted, event) else None)
            if self._of_all:
                self._publish_to_all(event)

    def _miss(self) -> None:
        for follower in (*itertools.chain(*self._of_sessions.values()), *self._of_all):
            follower.miss()

    def _publish_to_all(self, event: Recorded) -> None:
        for follower, wanted in self._of_all.items():
            owner = None if wanted.owner is None else self._owner(event.session_key)
            if wanted.owner is not None and owner is None and event.session_key != SYSTEM_KEY:
                follower.miss()
            else:
                is_wanted = owner == wanted.owner and _is_wanted(wanted, event)
                follower.offer(event.id, event if is_wanted else None)

    def _owner(self, session_key: str) -> str | None:
        owner = self._owners.get(session_key)
        if owner is None and session_key != SYSTEM_KEY:
            owner = self._owner_of(session_key)
            if owner is not None:
                self._owners[session_key] = owner
                if len(self._owners) > _MOST_OWNERS:
                    self._owners.popitem(last=False)
        return owner


def _is_wanted(wanted: Selection, event: Recorded) -> bool:
    return wanted.operations is None or event.operation in wanted.operations
