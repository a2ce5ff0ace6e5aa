"""Fair queueing, so that no API key delays the others."""

import asyncio
from types import TracebackType

from orchestrator.ground.limits import FairSlots


class Slot:
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
        """Ends the work, which gives the slot to the next caller."""
        self._queue.finish(self._key)


class FairQueue:
    """Gives slots to callers; see `FairSlots` for the order."""

    def __init__(
        self, most: int, most_per_key: int, most_waiting: int, kind: str = "creations"
    ) -> None:
        """`kind` names the work in errors."""
        self._slots: FairSlots[asyncio.Future[None]] = FairSlots(
            most, most_per_key, most_waiting, kind
        )
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def waiting(self) -> int:
        """The number of waiting callers."""
        return self._slots.waiting

    @property
    def working(self) -> int:
        """The number of callers with a slot."""
        return self._slots.working

    async def quiet(self) -> None:
        """Waits until nobody has a slot or waits for one."""
        await self._quiet.wait()

    async def take(self, key: str) -> Slot:
        """Waits for a slot of the key, which the caller must then enter.

        A cancelled caller has no slot. Raises: RateLimitedError if too many callers of this key
        wait.
        """
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots.ask(key, given)
        self._quiet.clear()
        self._advance()
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self._slots.withdraw(key, given)
                self._settle()
            else:
                self.finish(key)
            raise
        return Slot(self, key)

    def finish(self, key: str) -> None:
        """Takes back one of the key's slots."""
        self._slots.finish(key)
        self._advance()

    def _advance(self) -> None:
        while (started := self._slots.next()) is not None:
            key, given = started
            if given.done():  # cancelled, but its task has not run yet
                self._slots.finish(key)
            else:
                given.set_result(None)
        self._settle()

    def _settle(self) -> None:
        if not self.working and not self.waiting:
            self._quiet.set()
