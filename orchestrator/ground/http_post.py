"""One POST to a URL of the operator, signed if its receiver must be able to verify it."""

import asyncio
import socket
import ssl
import time
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import aiohttp
from aiohttp import abc
from yarl import URL

from orchestrator.ground.http_connector import BoundedConnector
from orchestrator.ground.threads import Threads
from paddock.contract.signatures import signature

FAILURES = (OSError, ValueError, aiohttp.ClientError)
_UNBOUNDED = aiohttp.ClientTimeout(total=None)
# Look-ups of names for one owner.
_LOOKUPS_AT_ONCE = 4
_LOOKUP_SECONDS = 10.0


class Posted(NamedTuple):
    """An answer: its status, and the beginning of its body as it was sent.

    `cut`: the body is longer; `plain`: it is not compressed.
    """

    status: int
    body: bytes
    cut: bool
    plain: bool


class NameLookups(abc.AbstractResolver):
    """Looks names up in threads of its own.

    Otherwise all share the loop's threads, and a name server that hangs for one delays the others.
    """

    def __init__(self) -> None:
        self._threads = Threads("look-ups of names", _LOOKUPS_AT_ONCE)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[abc.ResolveResult]:
        """The addresses of a host. Raises: OSError, among them TimeoutError."""
        look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        found = await self._threads.call(look_up, _LOOKUP_SECONDS)
        return [
            abc.ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=found_family,
                proto=proto,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for found_family, _, proto, _, address in found
        ]

    async def close(self) -> None:
        """Does nothing: threads end with their calls."""


async def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status of the answer to a JSON body; the rest of the answer is not read.

    Redirects are not followed, and proxies of the environment are not used. It has no time-out: the
    caller must set one. Raises: FAILURES.
    """
    return (await post_and_read(url, headers, body, most_bytes=0)).status


async def post_and_read(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    most_bytes: int,
    lookups: NameLookups | None = None,
    tls: ssl.SSLContext | None = None,
) -> Posted:
    """Like `post`, but also returns at most `most_bytes` of the answer's body.

    `lookups` finds the host's addresses; None: the loop's threads do. `tls` has the certificates
    that count; None: those of this host do.
    """
    named = {
        "User-Agent": "paddock",
        "Content-Type": "application/json",
        # A small body must not become a large one here.
        "Accept-Encoding": "identity",
        **headers,
    }
    async with (
        aiohttp.ClientSession(
            connector=BoundedConnector(lookups),
            timeout=_UNBOUNDED,
            headers=named,
            auto_decompress=False,
        ) as client,
        client.post(
            URL(url, encoded=True), data=body, allow_redirects=False, ssl=tls or True
        ) as response,
    ):
        found = bytearray()
        if most_bytes:
            async for part in response.content.iter_any():
                found += part
                if len(found) > most_bytes:
                    break
        plain = response.headers.get("Content-Encoding", "identity") == "identity"
        return Posted(response.status, bytes(found[:most_bytes]), len(found) > most_bytes, plain)


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
