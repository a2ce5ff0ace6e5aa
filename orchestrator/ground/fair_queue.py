"""Fair queueing, so that no API key delays the others."""

import asyncio
from types import TracebackType

from orchestrator.ground.limits import Turns


class Turn:
    """Permission to do heavy work until the `with` block ends."""

    def __init__(self, queue: "FairQueue", key: str) -> None:
        self._queue = queue
        self._key = key

    def __enter__(self) -> None:
        """Begins the work."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the work, which gives the turn to the next caller."""
        self._queue.finish(self._key)


class FairQueue:
    """Gives turns; see `Turns` for the order."""

    def __init__(
        self, most: int, most_per_key: int, most_waiting: int, kind: str = "creations"
    ) -> None:
        """`kind` names the work in errors."""
        self._turns: Turns[asyncio.Future[None]] = Turns(most, most_per_key, most_waiting, kind)
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def waiting(self) -> int:
        """The number of waiting callers."""
        return self._turns.waiting

    @property
    def working(self) -> int:
        """The number of callers with a turn."""
        return self._turns.working

    async def quiet(self) -> None:
        """Waits until nobody has a turn or waits for one."""
        await self._quiet.wait()

    async def take(self, key: str) -> Turn:
        """Waits for the key's turn, which the caller must then enter.

        A cancelled caller has no turn. Raises: RateLimitedError if too many callers of this key
        wait.
        """
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.ask(key, given)
        self._quiet.clear()
        self._advance()
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self._turns.withdraw(key, given)
                self._settle()
            else:
                self.finish(key)
            raise
        return Turn(self, key)

    def finish(self, key: str) -> None:
        """Ends one of the key's turns."""
        self._turns.finish(key)
        self._advance()

    def _advance(self) -> None:
        while (turn := self._turns.next()) is not None:
            key, given = turn
            if given.done():  # cancelled, but its task has not run yet
                self._turns.finish(key)
            else:
                given.set_result(None)
        self._settle()

    def _settle(self) -> None:
        if not self.working and not self.waiting:
            self._quiet.set()
