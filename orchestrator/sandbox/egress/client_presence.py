"""Ends what is done for a client once the client has gone: nobody reads an answer any more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from orchestrator.ground.task_scope import together
from orchestrator.sandbox.egress.stream import Stream

# The time in which what a client sent before it went is passed on.
_PASSING_SECONDS = 5.0


class ClientGoneError(Exception):
    """The client has closed both directions of its connection."""


async def _never() -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def while_present(
    client: Stream, passed_on: Callable[[], Awaitable[object]] = _never
) -> AsyncIterator[Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]]:
    """Like `together`; if the client goes, the block is cancelled and raises ClientGoneError.

    `passed_on` returns when everything that the client has sent is on its way; it has a time limit.
    A client that has only finished sending is still present.
    """
    async with together() as start:
        watching = start(_watch(client, passed_on))
        yield start
        watching.cancel()


async def _watch(client: Stream, passed_on: Callable[[], Awaitable[object]]) -> None:
    """Raises: ClientGoneError."""
    await client.gone()
    with suppress(TimeoutError):
        async with asyncio.timeout(_PASSING_SECONDS):
            await passed_on()
    raise ClientGoneError
