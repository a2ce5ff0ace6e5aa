"""One POST to a URL of the operator's."""

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

URL_PATTERN = r"https?://[^\s/@?#]+(/[!-~]*)?"
FAILURES = (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_MAX_STATUS_LINE = 1024


async def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status that a JSON body is answered with; redirects are not followed.

    It waits as long as the other side likes: the caller bounds it. Raises: FAILURES.
    """
    target = urlsplit(url)
    secure = target.scheme == "https"
    reader, writer = await asyncio.open_connection(
        target.hostname,
        target.port or (443 if secure else 80),
        ssl=ssl.create_default_context() if secure else None,
        limit=_MAX_STATUS_LINE,
    )
    try:
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        writer.write(_head(path, target.netloc, headers, len(body)) + body)
        await writer.drain()
        version, status, *_ = (await reader.readuntil(b"\r\n")).split(maxsplit=2)
        if not version.startswith(b"HTTP/1."):
            raise ValueError("the answer is no HTTP")
        return int(status)
    finally:
        writer.transport.abort()


def _head(path: str, host: str, headers: Mapping[str, str], size: int) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        "Connection: close",
        "User-Agent: paddock",
        "Content-Type: application/json",
        f"Content-Length: {size}",
        *(f"{name}: {value}" for name, value in headers.items()),
    )
    return "\r\n".join((*lines, "", "")).encode("ascii")
