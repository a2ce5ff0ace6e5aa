"""A POST that its receiver can verify, and that ends whatever the receiver does."""

import asyncio
import time
from collections.abc import Mapping

from orchestrator.ground.http_post import FAILURES, NameLookups, Posted, post_and_read
from paddock.contract.signatures import signature

__all__ = ["FAILURES", "NameLookups", "Posted", "signed_headers", "signed_post"]


def signed_headers(secret: bytes, body: bytes) -> dict[str, str]:
    """`Paddock-Timestamp` (seconds since 1970) and `Paddock-Signature` of a body sent now."""
    timestamp = str(int(time.time()))
    return {
        "Paddock-Timestamp": timestamp,
        "Paddock-Signature": signature(secret, timestamp, body),
    }


async def signed_post(
    url: str,
    secret: bytes,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    most_bytes: int,
    lookups: NameLookups | None = None,
) -> Posted:
    """The answer to a signed JSON body, with at most `most_bytes` of the answer's.

    It takes at most `seconds`, the answer's body included. Redirects are not followed. `lookups`
    finds the host's addresses, so that name servers delay its owner only. Raises: FAILURES, among
    them TimeoutError.
    """
    async with asyncio.timeout(seconds):
        signed = {**headers, **signed_headers(secret, body)}
        return await post_and_read(url, signed, body, most_bytes, lookups)
