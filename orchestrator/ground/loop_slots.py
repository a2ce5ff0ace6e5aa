"""Spreads long work over passes of the event loop, so that other work waits for little of it."""

import asyncio
from collections import OrderedDict, deque

# With one, many downloads took longer; with four, commands waited longer (docs/performance.md).
_IN_ONE_PASS = 2


class LoopSlots:
    """Each pass of the event loop has a few slots, which sessions get round robin."""

    def __init__(self) -> None:
        # By session; the first one gets the next slot.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._running = False

    async def next(self, session: str) -> None:
        """Returns when the next piece of the session's work may be done."""
        slot = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(session, deque()).append(slot)
        if not self._running:
            self._running = True
            self._give()
        await slot

    def _give(self) -> None:
        """Gives the slots of this pass, and those of the next pass in that pass."""
        given = 0
        while self._waiting and given < _IN_ONE_PASS:
            session, slots = self._waiting.popitem(last=False)
            slot = slots.popleft()
            if slots:
                self._waiting[session] = slots
            if not slot.done():  # not cancelled
                slot.set_result(None)
                given += 1
        self._running = given > 0
        if self._running:
            asyncio.get_running_loop().call_soon(self._give)
