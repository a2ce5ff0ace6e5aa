"""The kernel says when the host's clock is set."""

import asyncio
import time
from datetime import timedelta

from orchestrator.ground.clock_changes import ClockChanges
from tests.support.limits import WAIT_SECONDS


async def test_a_clock_that_is_set_is_noticed_each_time() -> None:
    seen: asyncio.Queue[timedelta] = asyncio.Queue()
    changes = ClockChanges()
    changes.on_change(seen.put_nowait)
    changes.start()
    try:
        for _ in range(2):
            # To what it shows already: other tests run on this host.
            time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns())
            async with asyncio.timeout(WAIT_SECONDS):
                forward = await seen.get()
            assert abs(forward) < timedelta(seconds=1)
    finally:
        changes.close()
