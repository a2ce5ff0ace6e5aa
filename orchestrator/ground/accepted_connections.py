"""Accepts a sandbox's connections: not too fast, and not too many at once."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator
from typing import Any

from orchestrator.ground.fair_share import Pace
from orchestrator.ground.task_scope import TaskScope

log = logging.getLogger(__name__)

# After a failure to accept, for example when no descriptors are left.
_FAILED_SECONDS = 1.0


async def accepted_connections(
    listener: socket.socket, pace: Pace, served: TaskScope, most: int
) -> AsyncGenerator[tuple[socket.socket, Any], None]:
    """The connections of a sandbox and their addresses, while at most `most` are served.

    It closes the listener when it ends.
    """
    loop = asyncio.get_running_loop()
    with listener:
        while True:
            await asyncio.sleep(pace.wait())
            while len(served) >= most:
                await served.one_ended()
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("a sandbox's connection can't be accepted: %s", error)
                await asyncio.sleep(_FAILED_SECONDS)
                continue
            pace.count()
            yield connection, address
