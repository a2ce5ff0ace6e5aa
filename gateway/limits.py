"""What one caller, and all of them, may have open here.

A node counts by keys, which it knows. A gateway knows no keys: it counts by what is presented, of
which it keeps a digest, and by the address where nothing is.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from aiohttp import web

from orchestrator.ground.counts import Counts
from orchestrator.ground.errors import CapacityExhaustedError, RateLimitedError
from orchestrator.ground.limits import OPEN_REQUESTS

_RETRY_SECONDS = 1.0
_ALL = ""
# Where clients put a credential: E2B's have a header of their own, its older ones another.
_CREDENTIALS = ("Authorization", "X-API-Key", "X-Access-Token", "Sec-WebSocket-Protocol")


class GatewayLimits(NamedTuple):
    """Limits of a gateway. A node's own limits hold besides."""

    # Requests, streams and WebSockets that are open: of one credential, of one address that brings
    # none, and of all.
    of_credential: int = 4096
    of_address: int = 256
    of_all: int = 16_384
    # Bodies that are read before they are passed on, because they say where: one, and all.
    body_bytes: int = 8 * 2**20
    all_bodies_bytes: int = 64 * 2**20


GATEWAY_LIMITS = GatewayLimits()


class Open:
    """Counts what is open."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._callers = Counts[str](limits.of_credential)
        self._addresses = Counts[str](limits.of_address)
        self._all = Counts[str](limits.of_all)

    @property
    def total(self) -> int:
        """How many requests are open."""
        return self._all.total()

    @contextmanager
    def counted(self, request: web.Request) -> Iterator[None]:
        """Counts a request until the end of the block.

        Raises: RateLimitedError, CapacityExhaustedError.
        """
        credential = caller_of(request)
        counts = self._addresses if credential is None else self._callers
        with (
            self._all.taken(_ALL) as has_room,
            counts.taken(credential or request.remote or "") as may,
        ):
            if not may:
                raise RateLimitedError(
                    f"{counts.most} requests of this caller are open: finish some first",
                    limit=OPEN_REQUESTS,
                    retry_after=_RETRY_SECONDS,
                )
            if not has_room:
                raise CapacityExhaustedError(
                    f"{self._limits.of_all} requests are open here, the most of a gateway",
                    retry_after=_RETRY_SECONDS,
                )
            yield


def caller_of(request: web.Request) -> str | None:
    """The digest of what the caller presents; None: nothing."""
    for name in _CREDENTIALS:
        found = request.headers.get(name)
        if found is not None:
            return hashlib.sha256(found.encode("utf-8", "surrogateescape")).hexdigest()
    return None
