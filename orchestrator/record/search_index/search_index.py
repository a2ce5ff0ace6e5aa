"""The index follows the ledger in a thread of its own; searches run on the same connection.

Nothing waits for it but searches, for a moment. What it does not have yet, they read from the
ledger itself, so an index that is behind, lost or unwritable makes them slower and not wrong.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from orchestrator.ground.round_robin import Queue, asker
from orchestrator.ground.store.database import Worker, in_time
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.search_index import index_file
from orchestrator.record.search_index.feed import PORTION
from orchestrator.record.search_index.index_connection import IndexConnection

log = logging.getLogger(__name__)

# Events are indexed together after this time, when there are enough of them, or when a search
# waits: a portion costs little more than a single event.
_GATHER_SECONDS = 1.0
# A search waits so long for the index. Afterwards, it reads what is missing from the ledger.
_WAIT_SECONDS = 1.0
# The time for one call of the disk, including calls before it.
_CALL_SECONDS = 120.0
# After a failure, such as a full disk.
_AGAIN_SECONDS = 5.0
# Whoever waits for progress is answered at least this often.
_TELL_SECONDS = 5.0

T = TypeVar("T")


class Progress(NamedTuple):
    """The last event that is indexed, and the ledger's last one."""

    position: int
    end: int


class SearchIndex:
    """Works in the background from `start` to `close`. A failure is logged and retried."""

    def __init__(self, path: Path, ledger_path: Path, ledger: Ledger) -> None:
        """`path` is the index's file. It may be missing, damaged, or that of another ledger."""
        self._connection = IndexConnection(path, ledger_path)  # only the thread uses it
        self._ledger = ledger
        self._thread = Worker("paddock-search-index")
        self._browsing = Queue()
        self._rounds = Rounds(_CALL_SECONDS)
        self._task: Supervised | None = None
        self._closed = False
        # As of the latest portion.
        self._position = 0
        self._end = 0
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._stepped = asyncio.Event()
        # What was logged last: a full disk is not told of at each try.
        self._told: str | None = None
        ledger.on_commit(self._committed)

    def start(self, tasks: Tasks) -> None:
        """Begins to follow the ledger."""
        self._task = tasks.start(TaskName.SEARCH_INDEX, self._follow, rounds=self._rounds)

    @property
    def lag(self) -> int:
        """How many of the latest events are not indexed yet."""
        return max(0, self._end - self._position)

    async def browse(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `function` on one view of index and ledger. Raises: StoreError.

        The index's tables are `entries`, `words`, `spans` and `state`; all others are the
        ledger's. Callers are served round robin, so `function` should be quick.
        """
        return await in_time(self._browse(function), _CALL_SECONDS)

    async def _browse(self, function: Callable[[sqlite3.Connection], T]) -> T:
        async with self._browsing.slot(asker()):
            try:
                return await self._run(partial(self._connection.run, function))
            except StoreError as error:
                if not await self._made_again(error):
                    raise
            return await self._run(partial(self._connection.run, function))

    async def reach(self) -> None:
        """Waits, for a moment at most, until all events that are durable now are indexed.

        Raises: AuditUnavailableError.
        """
        known = await self._ledger.wait(None, -1)
        self._end = max(self._end, known)
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SECONDS):
                while self._position < known:
                    stepped = self._stepped
                    self._wake()
                    await stepped.wait()

    async def rebuild(self) -> Progress:
        """Removes the index, and begins to make it again from the ledger.

        Raises: AuditUnavailableError, StoreError.
        """
        self._end = max(self._end, await self._ledger.wait(None, -1))
        await in_time(self._start_over(), _CALL_SECONDS)
        return Progress(self._position, self._end)

    async def progress(self, after: int) -> Progress:
        """Waits, for some seconds at most, until much more than that is indexed, or everything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TELL_SECONDS):
                while self.lag and 0 <= self._position - after < self._end / 100:
                    self._wake()
                    await self._stepped.wait()
        return Progress(self._position, self._end)

    async def close(self) -> None:
        """Stops; the next start continues."""
        if self._closed:
            return
        if self._task is not None:
            await self._task.close()
        self._closed = True
        try:
            await self._thread.run(self._connection.close)
        finally:
            self._thread.stop()

    def _committed(self, committed: Sequence[Recorded] | None) -> None:
        if committed:
            self._end = committed[-1].id
        self._news.set()
        if self.lag >= PORTION:
            self._wanted.set()

    def _wake(self) -> None:
        self._news.set()
        self._wanted.set()

    async def _follow(self) -> None:
        while True:
            self._news.clear()
            self._wanted.clear()
            try:
                await self._catch_up()
            except StoreError as error:
                if not await self._made_again(error) and self._told != str(error):
                    log.warning("the search index is behind, and searches are slower: %s", error)
                    self._told = str(error)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            self._told = None
            await self._news.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GATHER_SECONDS):
                    await self._wanted.wait()

    async def _catch_up(self) -> None:
        more = True
        while more:
            with self._rounds.round():
                more = await self._feed()

    async def _feed(self) -> bool:
        """Feeds a portion; returns whether there is more. Raises: StoreError."""
        fed = await in_time(self._run(self._connection.feed), _CALL_SECONDS)
        self._position = fed.position
        self._end = max(self._end, fed.end)
        self._stepped.set()
        self._stepped = asyncio.Event()
        return fed.more

    async def _made_again(self, error: StoreError) -> bool:
        """Whether the error means that the file is damaged; then a new one is begun."""
        damaged = index_file.is_damage(error.__cause__)
        if damaged:
            log.error("the search index is damaged and is made again: %s", error)
            await self._start_over()
        return damaged

    async def _start_over(self) -> None:
        await self._run(self._connection.discard)
        self._position = 0
        self._wake()

    async def _run(self, function: Callable[[], T]) -> T:
        if self._closed:
            raise StoreError("the search index is closed")
        return await self._thread.run(function)
