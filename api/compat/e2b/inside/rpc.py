"""Connect RPC with JSON: calls with one answer, with a stream of answers, or of requests."""

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b.inside import codes
from api.compat.e2b.inside.access import Inside, enter, inside_credential
from api.compat.e2b.inside.codes import DeadlineError
from api.compat.e2b.inside.envelope import END, Decoder, encode
from api.compat.e2b.inside.messages import MOST_BYTES, Message
from api.compat.long_texts import object_text, size_of
from api.compat.protocol import Route
from api.http.body import BODY_PACE, UPLOAD_PACE, arriving, check_encoding
from api.shape.access import Access
from api.shape.objects import parse_object, validated
from orchestrator.ground.errors import SandboxUnavailableError, TooLargeError, ValidationError
from orchestrator.ground.serving import stream as http_stream
from orchestrator.ground.serving.errors import describe
from orchestrator.ground.task_scope import TaskScope

Given = TypeVar("Given", bound=Message)
Answer = dict[str, Any]
Answers = AsyncGenerator[Answer]

_UNARY, _STREAM = "application/json", "application/connect+json"
_TIMEOUT, _KEEPALIVE = "Connect-Timeout-Ms", "Keepalive-Ping-Interval"
# In seconds; the SDKs ask for 50.
_USUAL_KEEPALIVE, _KEEPALIVES = 50.0, (1.0, 3600.0)
_MOST_DIGITS = 10
# How long the end of a stream may take when the control plane stops.
_LAST_SECONDS = 2.0


def unary(
    path: str,
    model: type[Given],
    perform: Callable[[Inside, Given], Awaitable[Answer]],
    *,
    access: Access = Access.WORK,
    stops: bool = False,
) -> Route:
    """A call with one answer."""

    async def handler(call: Call) -> web.StreamResponse:
        inside = enter(call)
        given = await _understood(call, await _whole(call), model)
        answer = await perform(inside, given)
        text = await call.plane.aside.call(size_of(answer), partial(object_text, answer))
        return web.json_response(text=text)

    return Route(
        *("POST", path, access, handler),
        stops=stops,
        credential=inside_credential,
        failure=codes.failure,
    )


def answering(
    path: str, model: type[Given], perform: Callable[[Inside, Given, float | None], Answers]
) -> Route:
    """A call with a stream of answers; `perform` gets the caller's limit in seconds, if any."""

    async def handler(call: Call) -> web.StreamResponse:
        async def answers() -> Answers:
            inside = enter(call)
            given = await _understood(call, await _single(call), model)
            limit = timeout_of(call.request)
            async with aclosing(perform(inside, given, limit)) as found:
                async for each in found:
                    yield each

        return await _send(call, answers())

    return _route(path, handler)


def asking(
    path: str,
    model: type[Given],
    perform: Callable[[Inside, AsyncIterator[Given]], Awaitable[Answer]],
) -> Route:
    """A call with a stream of requests and one answer."""

    async def handler(call: Call) -> web.StreamResponse:
        async def answers() -> Answers:
            inside = enter(call)
            async with aclosing(_requests(call, model)) as requests:
                yield await perform(inside, requests)

        return await _send(call, answers())

    return _route(path, handler)


def _route(path: str, handler: Callable[[Call], Awaitable[web.StreamResponse]]) -> Route:
    return Route(
        *("POST", path, Access.WORK, handler),
        credential=inside_credential,
        failure=codes.failure,
    )


# Requests.


def timeout_of(request: web.Request) -> float | None:
    """The caller's limit in seconds. Raises: ValidationError."""
    text = request.headers.get(_TIMEOUT)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ValidationError(f"{_TIMEOUT} must be milliseconds", field=_TIMEOUT)
    return max(1, int(text)) / 1000


def keepalive_of(request: web.Request) -> float:
    """After how many seconds without an event the caller wants a sign of life."""
    text = request.headers.get(_KEEPALIVE, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return _USUAL_KEEPALIVE
    least, most = _KEEPALIVES
    return min(max(float(text), least), most)


def _check_type(request: web.Request, wanted: str) -> None:
    check_encoding(request)
    if request.content_type != wanted:
        raise ValidationError(f"Content-Type must be {wanted}", field="Content-Type")


async def _whole(call: Call) -> bytes:
    _check_type(call.request, _UNARY)
    data = bytearray()
    with call.unread.body(call.context.principal) as counted:
        async for chunk in arriving(call.request, BODY_PACE):
            if len(data) + len(chunk) > MOST_BYTES:
                raise TooLargeError(f"the body is over the limit, {MOST_BYTES} bytes")
            counted.add(len(chunk))
            data += chunk
    return bytes(data)


async def _single(call: Call) -> bytes:
    """The one message of a call whose answers are a stream."""
    _check_type(call.request, _STREAM)
    decoder, found = Decoder(MOST_BYTES), None
    with call.unread.body(call.context.principal) as counted:
        async for chunk in arriving(call.request, BODY_PACE):
            counted.add(len(chunk))
            decoder.feed(chunk)
            while (envelope := decoder.next()) is not None:
                if found is not None:
                    raise ValidationError("this call takes one message")
                found = envelope.data
    decoder.finish()
    if found is None:
        raise ValidationError("this call takes one message")
    return found


async def _requests(call: Call, model: type[Given]) -> AsyncGenerator[Given]:
    _check_type(call.request, _STREAM)
    decoder = Decoder(MOST_BYTES)
    with ExitStack() as held:
        async for chunk in arriving(call.request, UPLOAD_PACE):
            decoder.feed(chunk)
            while (envelope := decoder.next()) is not None:
                if envelope.flags & END:
                    return
                yield await _understood(call, envelope.data, model)
                await asyncio.sleep(0)  # many small ones may have arrived at once
            # The beginning of a message counts until it is whole, as that of a body does.
            held.close()
            if decoder.waiting:
                counted = held.enter_context(call.unread.body(call.context.principal))
                counted.add(decoder.waiting)
    decoder.finish()


async def _understood(call: Call, data: bytes, model: type[Given]) -> Given:
    return await call.plane.aside.call(len(data), partial(_read, data, model))


def _read(data: bytes, model: type[Given]) -> Given:
    return validated(model, parse_object(data or b"{}"))


# Answers.


async def _send(call: Call, answers: Answers) -> web.StreamResponse:
    """Writes the answers, and how the stream has ended: the status of HTTP is 200 in any case."""
    request = call.request
    response = web.StreamResponse(headers={"Content-Type": _STREAM, "X-Accel-Buffering": "no"})
    call.context.work.follow()
    begun = False
    end: Answer = {}
    try:
        async with aclosing(answers) as found:
            async for each in found:
                if not begun:
                    begun = True
                    await http_stream.begin(request, response)
                await http_stream.write(request, response, encode(_dumps(each).encode()))
    except asyncio.CancelledError:
        if call.context.work.stopping:
            await _last_words(request, response, begun=begun)
        raise
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - it is described to the caller, or logged
        end = {"error": codes.members(describe(error))}
    if not begun:
        await http_stream.begin(request, response)
    await http_stream.write(request, response, encode(_dumps(end).encode(), END))
    await response.write_eof()
    return response


async def _last_words(request: web.Request, response: web.StreamResponse, *, begun: bool) -> None:
    """Tells that the control plane stops; what runs goes on."""
    error = SandboxUnavailableError("the control plane restarts: connect again")
    end = encode(_dumps({"error": codes.members(error)}).encode(), END)
    try:
        async with asyncio.timeout(_LAST_SECONDS):
            if not begun:
                await http_stream.begin(request, response)
            await http_stream.write(request, response, end)
            await response.write_eof()
    except (TimeoutError, ConnectionError):
        return


async def paced(
    answers: Answers, keepalive: Answer, seconds: float, limit: float | None
) -> Answers:
    """The answers, and a sign of life after so many seconds without one.

    Raises: DeadlineError once `limit` seconds are over.
    """
    until = math.inf if limit is None else time.monotonic() + limit
    scope = TaskScope("the next answer of a stream")
    async with aclosing(answers):
        try:
            coming = scope.begin(_next(answers))
            while True:
                left = until - time.monotonic()
                if left <= 0:
                    raise DeadlineError("the time that the caller gave is over")
                await asyncio.wait({coming}, timeout=min(seconds, left))
                if coming.done():
                    if (found := coming.result()) is None:
                        return
                    yield found
                    coming = scope.begin(_next(answers))
                elif left > seconds:
                    yield keepalive
        finally:
            await scope.close()


async def _next(answers: Answers) -> Answer | None:
    return await anext(answers, None)


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
