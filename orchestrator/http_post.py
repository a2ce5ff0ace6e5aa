"""One POST to a URL of the operator.

Redirects are not followed, and proxies of the environment are not used. It has no time-out: the
caller must set one.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
from yarl import URL

FAILURES = (OSError, ValueError, aiohttp.ClientError)
_UNBOUNDED = aiohttp.ClientTimeout(total=None)
_PIECE = 64 * 1024


class PostAnswer(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: bytes


async def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status of the answer to a JSON body; the rest of the answer is not read.

    Raises: FAILURES.
    """
    async with _posted(url, headers, body) as response:
        return response.status


async def ask(url: str, headers: Mapping[str, str], body: bytes, most_bytes: int) -> PostAnswer:
    """The answer to a JSON body.

    Raises: FAILURES, of which ValueError is for an answer that has more bytes or is compressed.
    """
    plain = {"Accept-Encoding": "identity", **headers}
    async with _posted(url, plain, body) as response:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ValueError("it is compressed")
        said = bytearray()
        async for piece in response.content.iter_chunked(_PIECE):
            said += piece
            if len(said) > most_bytes:
                raise ValueError(f"it has more than {most_bytes} bytes")
        return PostAnswer(response.status, bytes(said))


@asynccontextmanager
async def _posted(
    url: str, headers: Mapping[str, str], body: bytes
) -> AsyncIterator[aiohttp.ClientResponse]:
    named = {"User-Agent": "paddock", "Content-Type": "application/json", **headers}
    async with (
        aiohttp.ClientSession(timeout=_UNBOUNDED, headers=named, auto_decompress=False) as client,
        client.post(URL(url, encoded=True), data=body, allow_redirects=False) as response,
    ):
        yield response
