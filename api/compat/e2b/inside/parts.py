"""The files of a multipart body as they arrive, at a least pace."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.web_exceptions import HTTPException

from api.http.body import UPLOAD_PACE, Window
from orchestrator.ground.errors import ValidationError

_CHUNK_BYTES = 64 * 1024
_NAME = "file"
_FILE_NAME = re.compile(r';\s*filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_ESCAPED = re.compile(r'\\(["\\])')
# What the parser raises for a body that is no multipart.
_MALFORMED = (ValueError, AssertionError, RuntimeError, LookupError, TypeError, AttributeError)

T = TypeVar("T")


async def parts(request: web.Request) -> AsyncGenerator[tuple[str, AsyncGenerator[bytes]]]:
    """The file name and the bytes of each part that is called `file`; others are passed over.

    A part is to be read before the next one is asked for. Raises: ValidationError.
    """
    window = Window(UPLOAD_PACE)
    try:
        reader: MultipartReader = await request.multipart()
    except (*_MALFORMED, HTTPException):
        raise _malformed() from None
    while True:
        part = await _in_time(window, reader.next(), 0)
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise ValidationError("parts can't have parts")
        if part.headers.get("Content-Encoding") or part.headers.get("Content-Transfer-Encoding"):
            raise ValidationError("parts can't be encoded")
        pieces = _pieces(window, part)
        if part.name == _NAME:
            yield file_name(part.headers.get("Content-Disposition", "")), pieces
        async for _ in pieces:  # what nobody has read
            continue


def file_name(disposition: str) -> str:
    """The name of a part's file, which may be a path; empty without one.

    Clients write a quotation mark as `%22` or after a backslash. Pure.
    """
    found = _FILE_NAME.search(disposition)
    if found is None:
        return ""
    return _ESCAPED.sub(r"\1", found[1]).replace("%22", '"')


async def _pieces(window: Window, part: BodyPartReader) -> AsyncGenerator[bytes]:
    while True:
        began = time.monotonic()
        piece = await _in_time(window, part.read_chunk(_CHUNK_BYTES), None)
        if not piece:
            return
        window.passed(time.monotonic() - began, len(piece))
        yield piece
        await asyncio.sleep(0)


async def _in_time(window: Window, reading: Awaitable[T], arrived: int | None) -> T:
    """What is read. Raises: ValidationError if it is malformed, or arrives too slowly."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(window.left):
            found = await reading
    except TimeoutError:
        window.passed(window.left, 0)
        raise ValidationError("the body arrives too slowly") from None
    except _MALFORMED:
        raise _malformed() from None
    if arrived is not None:
        window.passed(time.monotonic() - began, arrived)
    return found


def _malformed() -> ValidationError:
    return ValidationError("the body is not multipart as its header says")
