"""Waiting for what nothing tells of."""

import asyncio
from collections.abc import Callable

_SECONDS = 60


async def until(condition: Callable[[], bool]) -> None:
    """Lets everything else go on until it holds."""
    async with asyncio.timeout(_SECONDS):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
