"""Lets long work take turns, so that what else the event loop does waits for a few at most."""

import asyncio
from collections import OrderedDict, deque

# With one, many downloads took longer; with four, commands waited longer (docs/performance.md).
_IN_ONE_PASS = 2


class LoopTurns:
    """In a pass of the event loop, a few pieces of work are done; sessions take turns."""

    def __init__(self) -> None:
        # By session, the one whose turn is next first.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._running = False

    async def next(self, session: str) -> None:
        """Returns when the next piece of the session's work may be done."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(session, deque()).append(turn)
        if not self._running:
            self._running = True
            self._give()
        await turn

    def _give(self) -> None:
        """Gives the turns of this pass, and the next ones in the next pass."""
        given = 0
        while self._waiting and given < _IN_ONE_PASS:
            session, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[session] = turns
            if not turn.done():  # not cancelled
                turn.set_result(None)
                given += 1
        self._running = given > 0
        if self._running:
            asyncio.get_running_loop().call_soon(self._give)
