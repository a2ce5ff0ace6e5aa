"""Bodies that arrive compressed, in pieces that are small whatever was compressed."""

import asyncio
import zlib
from collections.abc import AsyncIterator

from orchestrator.ground.errors import ValidationError

_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 64 * 1024
# Levels above take several times as long.
_LEVEL = 1


async def inflated(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The content of a gzip stream. Raises: ValidationError if it is damaged or cut.

    Whoever takes the pieces limits their number: a few bytes may stand for a gigabyte.
    """
    inflater = zlib.decompressobj(_GZIP)
    async for chunk in chunks:
        data = chunk
        while data:
            if inflater.eof:
                inflater = zlib.decompressobj(_GZIP)  # a stream may have several members
            try:
                piece = inflater.decompress(data, _PIECE)
            except zlib.error:
                raise ValidationError("the body is not gzip", field="Content-Encoding") from None
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            if piece:
                yield piece
            await asyncio.sleep(0)
    if not inflater.eof:
        raise ValidationError("the gzip stream was cut", field="Content-Encoding")


async def deflated(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The bytes as a gzip stream."""
    deflater = zlib.compressobj(_LEVEL, wbits=_GZIP)
    async for chunk in chunks:
        for at in range(0, len(chunk), _PIECE):
            if piece := deflater.compress(chunk[at : at + _PIECE]):
                yield piece
            await asyncio.sleep(0)
    yield deflater.flush()
