"""One POST to a URL of the operator."""

from collections.abc import Mapping

import aiohttp
from yarl import URL

FAILURES = (OSError, ValueError, aiohttp.ClientError)
_UNBOUNDED = aiohttp.ClientTimeout(total=None)


async def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status of the answer to a JSON body; the rest of the answer is not read.

    Redirects are not followed, and proxies of the environment are not used. It has no time-out: the
    caller must set one. Raises: FAILURES.
    """
    named = {"User-Agent": "paddock", "Content-Type": "application/json", **headers}
    async with (
        aiohttp.ClientSession(timeout=_UNBOUNDED, headers=named) as client,
        client.post(URL(url, encoded=True), data=body, allow_redirects=False) as response,
    ):
        return response.status
