"""Writes answers that a gateway has made itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from aiohttp import web

from gateway.faces.asking import Refusal
from orchestrator.ground.serving import stream

_JSON = "application/json; charset=utf-8"
# Written at once: to encode so much takes a few milliseconds.
_PIECE_BYTES = 64 * 1024


def small(value: Mapping[str, Any]) -> web.Response:
    """An answer that is made at once."""
    return web.Response(body=_encoded(value), headers={"Content-Type": _JSON})


def refused(refusal: Refusal) -> web.Response:
    """A node's refusal, as it was sent."""
    return web.Response(status=refusal.status, headers=refusal.headers, body=refusal.body)


async def listed(
    request: web.Request, items: Sequence[Any], others: Mapping[str, Any]
) -> web.StreamResponse:
    """A list, whose items are encoded one by one, and its other members."""
    response = web.StreamResponse(headers={"Content-Type": _JSON})
    await stream.begin(request, response)
    async for piece in _pieces(items, b'{"items":[', b"]," + _encoded(others)[1:]):
        await stream.write(request, response, piece)
    await stream.within_time(request, response.write_eof())
    return response


async def listed_alone(
    request: web.Request, items: Sequence[Any], headers: Mapping[str, str]
) -> web.StreamResponse:
    """A list and nothing else, whose other members are headers."""
    response = web.StreamResponse(headers={"Content-Type": _JSON, **headers})
    await stream.begin(request, response)
    async for piece in _pieces(items, b"[", b"]"):
        await stream.write(request, response, piece)
    await stream.within_time(request, response.write_eof())
    return response


async def _pieces(items: Sequence[Any], begin: bytes, end: bytes) -> AsyncIterator[bytes]:
    piece = bytearray(begin)
    for number, item in enumerate(items):
        piece += b"," if number else b""
        piece += _encoded(item)
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
            await asyncio.sleep(0)
    yield bytes(piece) + end


def _encoded(value: Any) -> bytes:
    # What a node has sent may have escapes of lone surrogates, which UTF-8 has no bytes for.
    return json.dumps(value, separators=(",", ":")).encode()
