"""One POST to a URL of the operator's."""

from collections.abc import Mapping

import aiohttp
from yarl import URL

FAILURES = (OSError, ValueError, aiohttp.ClientError)
_UNBOUNDED = aiohttp.ClientTimeout(total=None)


async def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status that a JSON body is answered with; what else the answer says is not read.

    Redirects are not followed, and proxies of the environment not used. It waits as long as the
    other side likes: the caller bounds it. Raises: FAILURES.
    """
    named = {"User-Agent": "paddock", "Content-Type": "application/json", **headers}
    async with (
        aiohttp.ClientSession(timeout=_UNBOUNDED, headers=named) as client,
        client.post(URL(url, encoded=True), data=body, allow_redirects=False) as response,
    ):
        return response.status
