"""Who follows the audit stream: each commit is told to all of them, and dumped once.

A follower first reads from the ledger what it has not seen, and then gets what is committed.
One that falls behind, or that a commit may have missed, reads from the ledger again.
"""

import asyncio
import itertools
import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from orchestrator.audit import query
from orchestrator.audit.events import SYSTEM_KEY, Recorded
from orchestrator.audit.ledger import Ledger
from orchestrator.store.database import Database
from paddock.audit.chain import Event

_PAGE = 100
# What is kept for a follower that is busy. The events themselves are shared by all of them.
_MOST_WAITING = 256
_MOST_WAITING_BYTES = 1024 * 1024
_MOST_OWNERS = 10_000
_NONE: frozenset["Follower"] = frozenset()


class StreamedEvent(NamedTuple):
    """An event for followers; `text` is its JSON, in ASCII on one line."""

    id: int
    seq: int
    operation: str
    text: str


class _Page(NamedTuple):
    """`end`: up to there nothing is left to read; `more`: behind it there may be."""

    events: list[StreamedEvent]
    end: int
    more: bool


class Follower:
    """Reads one stream of events in order, from any position, without a gap or a repetition."""

    def __init__(
        self,
        read: Callable[[int], Awaitable[_Page]],
        after: int,
        over: asyncio.Future[None] | None,
    ) -> None:
        """`over` is done when no event comes any more."""
        self._read = read
        self._position = after
        self._over = over
        self._waiting: deque[tuple[int, StreamedEvent]] = deque()
        self._waiting_bytes = 0
        # Whether all that comes after the position is in `_waiting`.
        self._complete = False
        self._news = asyncio.Event()
        if over is not None:
            over.add_done_callback(self._wake)

    async def next(self) -> list[StreamedEvent]:
        """The next events, once there are some; none when it is over. It may be cancelled.

        Raises: StoreError.
        """
        while True:
            # First of all: news that come while the ledger is read are not to be missed.
            self._news.clear()
            over = self._over is not None and self._over.done()
            if over or not self._complete:
                events = await self._catch_up()
                if events or over:
                    return events
                if not self._complete:  # more is left, of which the page had none
                    continue
            events = self._take()
            if events:
                return events
            await self._news.wait()

    def offer(self, position: int, event: StreamedEvent) -> None:
        """An event was committed."""
        if not self._complete:
            return
        self._waiting.append((position, event))
        self._waiting_bytes += len(event.text)
        if len(self._waiting) > _MOST_WAITING or self._waiting_bytes > _MOST_WAITING_BYTES:
            self.miss()
        self._news.set()

    def miss(self) -> None:
        """Something may have been committed that was not offered: the ledger has it."""
        self._complete = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._news.set()

    def close(self) -> None:
        """Nobody reads any more."""
        if self._over is not None:
            self._over.remove_done_callback(self._wake)

    def _wake(self, _over: object) -> None:
        self._news.set()

    async def _catch_up(self) -> list[StreamedEvent]:
        # Before it is read: what is committed meanwhile is offered, and skipped if it was read.
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

    def _take(self) -> list[StreamedEvent]:
        events: list[StreamedEvent] = []
        while self._waiting and len(events) < _PAGE:
            position, event = self._waiting.popleft()
            self._waiting_bytes -= len(event.text)
            if position > self._position:
                self._position = position
                events.append(event)
        return events


class Followers:
    """All followers of a ledger."""

    def __init__(
        self, ledger: Ledger, database: Database, owner_of: Callable[[str], str | None]
    ) -> None:
        """`owner_of` tells the owner of a session by its key, where it is known."""
        self._database = database
        self._ledger = ledger
        self._owner_of = owner_of
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._of_sessions: dict[str, set[Follower]] = {}
        # With the owner whose events it gets; None: everybody's.
        self._of_all: dict[Follower, str | None] = {}
        # The `id` of the next commit's first event, unless something was committed untold.
        self._next_id = 0
        ledger.on_commit(self._publish)

    @contextmanager
    def of_session(
        self, session_key: str, after: int, over: asyncio.Future[None] | None = None
    ) -> Iterator[Follower]:
        """Follows a session's chain after a `seq`, until it is over and all of it is read."""

        async def read(position: int) -> _Page:
            found = await query.page(self._database, session_key, after_seq=position, limit=_PAGE)
            end = found.items[-1]["seq"] if found.items else position
            return _Page([_streamed(event) for event in found.items], end, found.next is not None)

        follower = Follower(read, after, over)
        followers = self._of_sessions.setdefault(session_key, set())
        followers.add(follower)
        try:
            yield follower
        finally:
            follower.close()
            followers.discard(follower)
            if not followers:
                self._of_sessions.pop(session_key, None)

    @contextmanager
    def of_all(self, after: int, owner: str | None) -> Iterator[Follower]:
        """Follows all chains after an `id`; with an owner, those of its sessions."""

        async def read(position: int) -> _Page:
            # Where none of the events up to here is the owner's, it goes on after them.
            end = await self._ledger.wait(None, -1)
            found = await query.all_page(self._database, position, _PAGE, owner)
            if found.next is None:
                end = max(end, found.items[-1]["id"] if found.items else position)
            else:
                end = found.next
            return _Page([_streamed(e) for e in found.items], end, found.next is not None)

        follower = Follower(read, after, None)
        self._of_all[follower] = owner
        try:
            yield follower
        finally:
            del self._of_all[follower]

    def _publish(self, committed: Sequence[tuple[str, Recorded]] | None) -> None:
        """Tells of a commit; None: it is not known what was committed."""
        if committed is None:
            self._miss()
            return
        if committed and committed[0][1].id != self._next_id:
            self._miss()
        for session_key, recorded in committed:
            self._next_id = recorded.id + 1
            followers = self._of_sessions.get(session_key, _NONE)
            if followers or self._of_all:
                event = _streamed(recorded.event())
                for follower in followers:
                    follower.offer(event.seq, event)
                self._publish_to_all(session_key, event)

    def _miss(self) -> None:
        for follower in (*itertools.chain(*self._of_sessions.values()), *self._of_all):
            follower.miss()

    def _publish_to_all(self, session_key: str, event: StreamedEvent) -> None:
        for follower, owner in self._of_all.items():
            whose = None if owner is None else self._owner(session_key)
            if owner == whose:
                follower.offer(event.id, event)
            elif whose is None and session_key != SYSTEM_KEY:
                follower.miss()

    def _owner(self, session_key: str) -> str | None:
        owner = self._owners.get(session_key)
        if owner is None and session_key != SYSTEM_KEY:
            owner = self._owner_of(session_key)
            if owner is not None:
                self._owners[session_key] = owner
                if len(self._owners) > _MOST_OWNERS:
                    self._owners.popitem(last=False)
        return owner


def _streamed(event: Event) -> StreamedEvent:
    text = json.dumps(event, separators=(",", ":"))
    return StreamedEvent(event["id"], event["seq"], event["operation"], text)
