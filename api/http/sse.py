"""Writes Server-Sent Events."""

from contextlib import aclosing

from aiohttp import web

from api.http import stream
from api.shape.answers import Event, EventStream


async def send(request: web.Request, answer: EventStream) -> web.StreamResponse:
    """Writes all events. Raises: ConnectionError if the client has gone."""
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    )
    with answer.held:
        await stream.begin(request, response)
        async with aclosing(answer.events) as events:
            async for event in events:
                # A comment shows that the connection is alive.
                data = b": alive\n\n" if event is None else encode_event(event)
                await stream.write(request, response, data)
        await response.write_eof()
    return response


def encode_event(event: Event) -> bytes:
    """Encodes an event; JSON escapes line breaks in its text."""
    head = "" if event.id is None else f"id: {event.id}\n"
    data = event.data.encode()
    return f"{head}event: {event.name}\ndata: ".encode() + data + b"\n\n"
