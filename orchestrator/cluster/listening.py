"""Looking at what may have changed in the cluster's database, whenever it tells of a change."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Never

from orchestrator.cluster.shared import Connection, SharedDatabase

# A connection without news may be a dead one.
LOOK_SECONDS = 20.0


async def look_at_news(
    database: SharedDatabase,
    channel: str,
    look: Callable[[Connection], Awaitable[None]],
    seconds: float = LOOK_SECONDS,
) -> Never:
    """Calls `look` at once, after each message of the channel, and after `seconds` without one.

    `look` sees what was changed before it was called. Raises: ClusterUnavailableError when the
    database is away, and the errors of `look`.
    """
    told = asyncio.Event()
    async with database.listening(channel, told.set) as connection:
        while True:
            told.clear()
            await look(connection)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await told.wait()
