"""Reads request bodies as they arrive, at a least pace, and then as the operation's model."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple, TypeVar

from aiohttp import web
from pydantic import BaseModel

from api.http.bounds import UnreadBody
from api.shape.objects import parse_object, validated
from orchestrator.ground.errors import TooLargeError, ValidationError
from orchestrator.ground.threads import Aside
from paddock.contract.requests import Body, NoBody
from paddock.contract.words import LEVEL_NAMES


class Pace(NamedTuple):
    """At least so many bytes in each window of so many seconds, until the body ends."""

    bytes_per_second: int
    seconds: float

    @property
    def least(self) -> int:
        """Bytes in a window."""
        return round(self.bytes_per_second * self.seconds)


# Bodies are held until they are whole. Uploads are passed on as they come; a client may make them
# meanwhile.
BODY_PACE = Pace(8 * 1024, 10.0)
UPLOAD_PACE = Pace(1024, 60.0)


class Window:
    """The present window of one body. Time counts only while the server waits for the client."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.left = pace.seconds
        self._arrived = 0

    def passed(self, seconds: float, arrived: int) -> None:
        """Counts a time of waiting, and the bytes that came then. Raises: ValidationError."""
        self.left -= seconds
        self._arrived += arrived
        if self.left > 0:
            return
        if self._arrived < self._pace.least:
            raise ValidationError(
                f"the body arrives too slowly: {self._arrived} bytes in {self._pace.seconds:g} s, "
                f"and at least {self._pace.least} must"
            )
        self.left, self._arrived = self._pace.seconds, 0


# Bodies that are announced to be no larger are not counted, as requests that stop something are.
SMALL_BYTES = 4096
_CHUNK_BYTES = 256 * 1024

Model = TypeVar("Model", bound=BaseModel)
Given = TypeVar("Given", bound=Body)


async def read_body(
    request: web.Request,
    model: type[Given],
    unread: AbstractContextManager[UnreadBody],
    aside: Aside,
    levels: Collection[str] = LEVEL_NAMES,
) -> Given:
    """The body as `model`; `levels` are the permission levels that it may name.

    Raises: ValidationError; TooLargeError; CapacityExhaustedError if many long ones are being
    read; the errors of `unread`, which counts the body until it is understood.
    """
    check_encoding(request)
    if is_small(request):
        data = await _whole(request, SMALL_BYTES)
        return await _understood(data, model, aside, levels)
    with unread as counted:
        data = await _whole(request, model.MOST_BYTES, counted)
        return await _understood(data, model, aside, levels)


async def _understood(
    data: bytes, model: type[Given], aside: Aside, levels: Collection[str]
) -> Given:
    if not data and issubclass(model, NoBody):
        return model()
    if not model.__pydantic_complete__:
        model.model_rebuild()  # here, because it is not made for threads
    return await aside.call(len(data), partial(_read, data, model, levels))


def _read(data: bytes, model: type[Model], levels: Collection[str]) -> Model:
    return validated(model, parse_object(data), {"levels": levels})


def is_small(request: web.Request) -> bool:
    """Whether reading the body costs no more than refusing the request."""
    length = request.content_length
    return not request.can_read_body if length is None else length <= SMALL_BYTES


async def _whole(request: web.Request, most: int, counted: UnreadBody | None = None) -> bytes:
    data = bytearray()
    if (request.content_length or 0) > most:
        raise _too_large(most)
    async for chunk in arriving(request, BODY_PACE):
        if len(data) + len(chunk) > most:
            raise _too_large(most)
        if counted is not None:
            counted.add(len(chunk))
        data += chunk
    return bytes(data)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the body is over the limit of this operation, {most} bytes")


async def arriving(request: web.Request, pace: Pace) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises: ValidationError if it arrives too slowly."""
    window = Window(pace)
    while not request.content.is_eof():
        chunk, began = None, time.monotonic()
        try:
            async with asyncio.timeout(window.left):
                chunk = await request.content.read(_CHUNK_BYTES)
        except TimeoutError:
            # The window is over, even if the loop's clock says that a moment is left.
            window.passed(window.left, 0)
        else:
            window.passed(time.monotonic() - began, len(chunk))
            yield chunk
    # All of the rest is here, as most bodies are at once: nothing waits, so nothing limits it.
    while chunk := request.content.read_nowait(_CHUNK_BYTES):
        yield chunk


def check_encoding(request: web.Request) -> None:
    """Refuses compressed bodies, whose size could not be limited. Raises: ValidationError."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ValidationError("Content-Encoding must be identity", field="Content-Encoding")
