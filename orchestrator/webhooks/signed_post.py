"""A signed POST whose receiver can check who sent it, and when."""

import asyncio
import hashlib
import hmac
import secrets
import time

from orchestrator.http_post import PostAnswer, ask


async def signed_post(
    url: str, body: bytes, secret: str, timeout: float, most_bytes: int
) -> PostAnswer:
    """The answer to a JSON body.

    The headers are `Paddock-Delivery`, a new id; `Paddock-Timestamp`, in seconds since 1970; and
    `Paddock-Signature`, as `signature` makes it. Raises: TimeoutError after `timeout` seconds, and
    the failures of `ask`.
    """
    timestamp = str(int(time.time()))
    headers = {
        "Paddock-Delivery": secrets.token_hex(8),
        "Paddock-Timestamp": timestamp,
        "Paddock-Signature": signature(secret.encode(), timestamp, body),
    }
    async with asyncio.timeout(timeout):
        return await ask(url, headers, body, most_bytes)


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """`v1=` and a hex HMAC-SHA256, under the secret: of the timestamp, a full stop and the body."""
    digest = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"v1={digest}"
