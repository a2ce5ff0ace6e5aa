"""Waits for conditions that have no event."""

import asyncio
from collections.abc import Callable

from tests.support.limits import WAIT_SECONDS

# Most conditions hold after a few turns of the loop; what waits longer waits for a thread or for
# another process, which need the processor more than this loop does.
_TURNS = 50
_PAUSE_SECONDS = 0.001


async def until(condition: Callable[[], bool]) -> None:
    """Lets everything else run until the condition holds."""
    turns = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            turns += 1
            await pause(turns)


async def pause(turn: int) -> None:
    """Lets everything else run between two looks."""
    await asyncio.sleep(0 if turn < _TURNS else _PAUSE_SECONDS)
