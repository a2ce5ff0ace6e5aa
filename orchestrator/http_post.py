"""One POST to a URL of the operator."""

from collections.abc import Mapping
from typing import NamedTuple

import aiohttp
from yarl import URL

FAILURES = (OSError, ValueError, aiohttp.ClientError)
_UNBOUNDED = aiohttp.ClientTimeout(total=None)


class Posted(NamedTuple):
    """An answer: its status, and the beginning of its body as it was sent; `cut`: not all of it."""

    status: int
    body: bytes
    cut: bool


async def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status of the answer to a JSON body; the rest of the answer is not read.

    Redirects are not followed, and proxies of the environment are not used. It has no time-out: the
    caller must set one. Raises: FAILURES.
    """
    return (await post_and_read(url, headers, body, most_bytes=0)).status


async def post_and_read(
    url: str, headers: Mapping[str, str], body: bytes, most_bytes: int
) -> Posted:
    """Like `post`, with at most so many bytes of the answer's body, however many there are."""
    named = {
        "User-Agent": "paddock",
        "Content-Type": "application/json",
        # A small body must not become a large one here.
        "Accept-Encoding": "identity",
        **headers,
    }
    async with (
        aiohttp.ClientSession(timeout=_UNBOUNDED, headers=named, auto_decompress=False) as client,
        client.post(URL(url, encoded=True), data=body, allow_redirects=False) as response,
    ):
        found = bytearray()
        if most_bytes:
            async for part in response.content.iter_any():
                found += part
                if len(found) > most_bytes:
                    break
        return Posted(response.status, bytes(found[:most_bytes]), len(found) > most_bytes)
