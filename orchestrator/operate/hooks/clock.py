"""The clock of deliveries, which tests replace."""

import asyncio
import time
from contextlib import suppress

# The host's clock may be set meanwhile, so it is looked at after this time at the latest.
_LONGEST_WAIT = 60.0


class WallClock:
    """Seconds since 1970, because due times outlive the process."""

    def now(self) -> float:
        """The present time."""
        return time.time()

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Waits for the event, at most until that time (None: without a limit).

        It may return earlier.
        """
        seconds = None if until is None else min(_LONGEST_WAIT, max(0.0, until - self.now()))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
