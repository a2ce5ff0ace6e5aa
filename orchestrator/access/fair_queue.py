"""Waiting for one's turn, so that no API key keeps the others from theirs."""

import asyncio
from types import TracebackType

from orchestrator.access.limits import Turns


class Turn:
    """Leave to do heavy work, until the `with` block ends."""

    def __init__(self, queue: "FairQueue", key: str) -> None:
        self._queue = queue
        self._key = key

    def __enter__(self) -> None:
        """The work begins."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The work is over: the next one's turn comes."""
        self._queue.finish(self._key)


class FairQueue:
    """Gives turns: see `Turns` for the order."""

    def __init__(
        self, most: int, most_per_key: int, most_waiting: int, kind: str = "creations"
    ) -> None:
        """`kind` names the work in errors."""
        self._turns: Turns[asyncio.Future[None]] = Turns(most, most_per_key, most_waiting, kind)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._turns.waiting

    @property
    def working(self) -> int:
        """How many have their turn."""
        return self._turns.working

    async def take(self, key: str) -> Turn:
        """Waits for the key's turn; the caller must then enter it.

        A caller that is cancelled has no turn. Raises: RateLimitedError when too many of
        this key's wait.
        """
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.ask(key, given)
        self._advance()
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self._turns.withdraw(key, given)
            else:
                self.finish(key)
            raise
        return Turn(self, key)

    def finish(self, key: str) -> None:
        """One of the key's turns is over."""
        self._turns.finish(key)
        self._advance()

    def _advance(self) -> None:
        while (turn := self._turns.next()) is not None:
            key, given = turn
            if given.done():  # cancelled, and not aware of it yet
                self._turns.finish(key)
            else:
                given.set_result(None)
