"""Streams that survive broken connections."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

from paddock.client.errors import ConnectionLostError, event_error
from paddock.client.retry import PASSING, Patience
from paddock.client.sse import ServerEvent
from paddock.client.transport import Transport

E = TypeVar("E")


async def resumed(
    api: Transport, path: str, after: int | str | None, over: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[ServerEvent, None]:
    """The events of a stream, each once, however often the connection breaks.

    After a break it continues after the `id` of the last event. `over` returns whether a response
    that ended properly was complete. Raises: the transport's errors; temporary ones only after the
    client's `reconnect` seconds.
    """
    patience = Patience(api.options.reconnect)
    while True:
        try:
            async with api.events("GET", path, after=after) as events:
                async for event in events:
                    patience.renew()
                    after = after if event.id is None else event.id
                    yield event
            if await over():
                return
            delay = patience.delay(ConnectionLostError(f"GET {path}: the stream ends too soon"))
        except PASSING as error:
            delay = patience.delay(error)
        await asyncio.sleep(delay)


async def answered(
    api: Transport,
    path: str,
    body: dict[str, Any],
    event_of: Callable[[str, Any], E | None],
    is_last: Callable[[E], bool],
    missing: str,
) -> AsyncGenerator[E, None]:
    """The events that answer a POST; `event_of` has the event of a name, None to skip it.

    Raises: PaddockAPIError for an `error` event; ConnectionLostError with the text `missing` if
    the last event does not come; the transport's errors.
    """
    ended = False
    async with api.events("POST", path, body=body) as events:
        async for event in events:
            if event.name == "error":
                raise event_error(event.data)
            found = event_of(event.name, event.data)
            if found is not None:
                ended = is_last(found)
                yield found
    if not ended:
        raise ConnectionLostError(missing)


async def never() -> bool:
    """For endless streams."""
    return False
