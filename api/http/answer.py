"""Writes answers as responses, whole or in pieces."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, aclosing

from aiohttp import web

from api.http import run_socket, terminal_socket
from api.shape.answers import (
    JSON,
    Answer,
    Attached,
    Empty,
    Event,
    EventStream,
    Exchange,
    Lines,
    Text,
)
from api.shape.byte_answers import Download, Packed, Printed, PrintedPart, Recording
from orchestrator.ground.serving import stream
from paddock.contract.base import Model

# Clients refuse headers of more than 8 KiB.
_LONGEST_HEADER = 4096


async def respond(request: web.Request, answer: object) -> web.StreamResponse:
    """The response to an answer; a stream has already been sent."""
    match answer:
        case Model():
            return _json(answer)
        case Answer():
            response = _json(answer.model, answer.STATUS)
            response.headers.update(answer.headers)
            return response
        case Empty():
            return web.Response(status=answer.STATUS, headers=answer.headers)
        case Text(text, content_type):
            body = text.encode() if isinstance(text, str) else text
            return web.Response(body=body, headers={"Content-Type": content_type})
        case EventStream():
            return await _events(request, answer)
        case Download():
            return await _download(request, answer)
        case Packed():
            return await _packed(request, answer)
        case Lines():
            return await _lines(request, answer)
        case Recording():
            return await _bytes(request, answer)
        case Printed():
            return await _printed(request, answer)
        case Attached():
            return await terminal_socket.serve(request, answer)
        case Exchange():
            return await run_socket.serve(request, answer)
    raise TypeError(f"{type(answer).__name__} is no answer")


def _json(model: Model, status: int = 200) -> web.Response:
    headers = {"Content-Type": f"{JSON}; charset=utf-8"}
    return web.Response(body=model.encode(), status=status, headers=headers)


async def _events(request: web.Request, answer: EventStream) -> web.StreamResponse:
    """Writes Server-Sent Events. Raises: ConnectionError if the client has gone."""
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
    head += "" if event.retry is None else f"retry: {event.retry}\n"
    data = event.data.encode()
    return f"{head}event: {event.name}\ndata: ".encode() + data + b"\n\n"


async def _lines(request: web.Request, answer: Lines[Model]) -> web.StreamResponse:
    media = f"{answer.MEDIA}; charset=utf-8"
    response = web.StreamResponse(headers={"Content-Type": media})
    return await _pieces(
        request, response, answer.held, (line.encode() async for line in answer.lines)
    )


async def _printed(request: web.Request, answer: Printed) -> web.StreamResponse:
    headers = {"Content-Type": answer.MEDIA, **answer.headers}
    response = web.StreamResponse(status=answer.STATUS, headers=headers)
    if isinstance(answer, PrintedPart):
        response.content_length = answer.size
    return await _pieces(request, response, answer.held, answer.chunks)


async def _bytes(request: web.Request, answer: Recording) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": answer.MEDIA})
    return await _pieces(request, response, answer.held, answer.chunks)


async def _pieces(
    request: web.Request,
    response: web.StreamResponse,
    held: ExitStack,
    pieces: AsyncIterator[bytes],
) -> web.StreamResponse:
    with held:
        await stream.begin(request, response)
        async for piece in pieces:
            await stream.write(request, response, piece)
        await response.write_eof()
    return response


async def _download(request: web.Request, answer: Download) -> web.StreamResponse:
    headers = {"Content-Type": answer.MEDIA, **answer.headers}
    response = web.StreamResponse(status=answer.STATUS, headers=headers)
    response.content_length = answer.size
    with answer.held:
        await stream.begin(request, response)
        if not await _send(request, response, answer):
            # Fewer bytes than announced must not look like the complete file.
            stream.abort(request)
    return response


async def _packed(request: web.Request, answer: Packed) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": answer.MEDIA})
    count, names = answer.HEADERS
    response.headers[count] = str(answer.skipped)
    response.headers[names] = _fitting(answer.skipped_names)
    return await _pieces(request, response, answer.held, answer.chunks)


def _fitting(names: Sequence[str]) -> str:
    """The first of the names as JSON, as many as a header can hold."""
    kept = list(names)
    while len(text := json.dumps(kept)) > _LONGEST_HEADER:
        kept.pop()
    return text


async def _send(request: web.Request, response: web.StreamResponse, answer: Download) -> bool:
    """Sends the announced bytes; returns False if the file has become shorter."""
    left = answer.size
    if left:
        async for chunk in answer.chunks:
            await stream.write(request, response, chunk[:left])
            left -= min(left, len(chunk))
            if not left:
                break
    return not left
