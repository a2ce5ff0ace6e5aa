"""Makes slots ahead in the background, and lets others use those that are made."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Threads
from orchestrator.host.workspace.prepared_slots import PreparedSlots

log = logging.getLogger(__name__)

T = TypeVar("T")

_REFILL_SECONDS = 60.0
# Copies of large workspaces take long.
_CALL_SECONDS = 1200.0
_PAUSE_SECONDS = 0.5
_CLEAR_SECONDS = 10.0
_CLOSE_SECONDS = 60.0


class SlotsAhead:
    """Slots that were made before anybody needs them."""

    def __init__(self, prepared: PreparedSlots, threads: Threads) -> None:
        self._prepared = prepared
        self._threads = threads
        # Sizes for which slots are to be made, and the task that makes them.
        self._wanted: OrderedDict[int, None] = OrderedDict()
        self._refilling = TaskScope("making workspaces ahead")
        self._calls = TaskScope("work on workspaces made ahead")
        self._closing = asyncio.Event()

    def expect(self, size: int) -> None:
        """Schedules slots of that size, after the sizes that are already scheduled."""
        self._wanted[size] = None
        if self._refilling.idle and not self._closing.is_set():
            self._refilling.spawn(self._refill_wanted())

    async def call(self, function: Callable[[PreparedSlots], T]) -> T:
        """The result of `function`, which runs in a thread, to its end if the caller is cancelled.

        Raises: TimeoutError, and what `function` raises.
        """
        calling = self._threads.call(lambda: function(self._prepared), _CALL_SECONDS)
        return await self._calls.shield(calling)

    async def close(self) -> None:
        """Ends the background work, and removes what was made."""
        self._wanted.clear()
        self._closing.set()
        await self._refilling.drain()
        try:
            # What is still being made would be left behind.
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._calls.drain()
            await self._threads.call(self._prepared.clear, _CLEAR_SECONDS)
        except OSError as error:  # includes TimeoutError
            log.warning("workspaces made ahead are removed by the next start: %s", error)

    async def _refill_wanted(self) -> None:
        """Makes the scheduled slots, after a pause: the session that took one is being started."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_SECONDS):
                await self._closing.wait()
        while self._wanted:
            size, _ = self._wanted.popitem(last=False)
            refill = partial(self._prepared.refill, size)
            try:
                await self._threads.call(refill, _REFILL_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it is, others are made
                log.warning("workspaces of %d bytes could not be made in advance: %s", size, error)
