"""A clock of deliveries that only tests move."""

import asyncio

from orchestrator.operate.hooks.clock import WallClock


class ManualClock(WallClock):
    """Stands still until it is advanced."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self._waiting: set[asyncio.Event] = set()

    def now(self) -> float:
        return self.time

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        if until is not None and until <= self.time:
            return
        self._waiting.add(event)
        try:
            await event.wait()
        finally:
            self._waiting.discard(event)

    def advance(self, seconds: float) -> None:
        """Moves the time; who waits looks at it again."""
        self.time += seconds
        for event in self._waiting:
            event.set()
