"""Waits for conditions that have no event."""

import asyncio
from collections.abc import Callable

_SECONDS = 60


async def until(condition: Callable[[], bool]) -> None:
    """Lets everything else run until the condition holds."""
    async with asyncio.timeout(_SECONDS):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
