"""Bodies that say where a request belongs: read whole, within bounds, before they are passed on."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from aiohttp import web

from gateway.errors import RETRY_SECONDS
from gateway.limits import GatewayLimits
from gateway.proxy import read_body
from orchestrator.ground import strict_json
from orchestrator.ground.errors import CapacityExhaustedError, TooLargeError
from orchestrator.ground.threads import Aside


class Bodies:
    """Reads bodies, and counts what is kept of all of them."""

    def __init__(self, limits: GatewayLimits, aside: Aside) -> None:
        self._limits = limits
        self._aside = aside
        self._held = 0

    @asynccontextmanager
    async def whole(self, request: web.Request) -> AsyncIterator[bytes]:
        """The whole body, which counts until the end of the block.

        Raises: ValidationError, TooLargeError, CapacityExhaustedError.
        """
        most = self._limits.body_bytes
        # A body without a length may have any up to the limit.
        size = most if request.content_length is None else request.content_length
        if size > most:
            raise _too_large(most)
        with self.counted(size):
            body = await read_body(request, most)
            if body is None:
                raise _too_large(most)
            yield body

    @contextmanager
    def counted(self, size: int) -> Iterator[None]:
        """Counts so many bytes until the end of the block. Raises: CapacityExhaustedError."""
        if self._held + size > self._limits.all_bodies_bytes:
            raise CapacityExhaustedError(
                "too many bodies of new sessions are being read: try again",
                retry_after=RETRY_SECONDS,
            )
        self._held += size
        try:
            yield
        finally:
            self._held -= size

    async def json(self, body: bytes) -> Any:
        """What the body says; None if it can't be read, which the node explains."""
        try:
            return await self._aside.call(len(body), partial(strict_json.parse, body, "the body"))
        except (strict_json.JsonError, ValueError, RecursionError):
            return None


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the body is over the limit of a gateway, {most} bytes")
