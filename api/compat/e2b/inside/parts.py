"""The files of a multipart body as they arrive."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from aiohttp import web

from api.compat.multipart import Multipart, boundary_of
from api.http.body import UPLOAD_PACE, arriving
from orchestrator.ground.errors import ValidationError

MOST_PARTS = 1024
_NAME = "file"
_FILE_NAME = re.compile(r';\s*filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_ESCAPED = re.compile(r'\\(["\\])')


async def parts(request: web.Request) -> AsyncGenerator[tuple[str, AsyncIterator[bytes]]]:
    """The file name and the bytes of each part that is called `file`; others are passed over.

    A part is to be read before the next one is asked for. Raises: ValidationError.
    """
    boundary = boundary_of(request.headers.get("Content-Type", ""))
    body = Multipart(arriving(request, UPLOAD_PACE), boundary, MOST_PARTS)
    async with aclosing(body.parts()) as found:
        async for part in found:
            if part.encoded:
                raise ValidationError("parts can't be encoded")
            if part.name == _NAME:
                yield file_name(part.disposition), part.data
            async for _ in part.data:  # what nobody has read
                continue


def file_name(disposition: str) -> str:
    """The name of a part's file, which may be a path; empty without one.

    Clients write a quotation mark as `%22` or after a backslash. Pure.
    """
    found = _FILE_NAME.search(disposition)
    if found is None:
        return ""
    return _ESCAPED.sub(r"\1", found[1]).replace("%22", '"')
