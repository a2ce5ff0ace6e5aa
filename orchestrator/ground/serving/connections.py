"""The connections of a server: bounded, so that those without a request take no room of others."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

# So many connections may always wait for a request or bring one, because it may be a request that
# stops something.
LEAST_WAITING = 64
# Of the process; connections of the API may take a third, those of sessions' ports another third.
_MOST_DESCRIPTORS = 65_536


def raise_descriptors() -> int:
    """Lets the process open as many descriptors as it may; returns the most of one server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_MOST_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted // 3


class ServedConnections:
    """Cuts the oldest connections that have brought no whole request, if there are too many.

    Such connections cost a client nothing. The limits of a caller bound those that are served.
    """

    def __init__(self) -> None:
        # In order: the one that has been without a request for the longest time is first.
        self._waiting: dict[RequestHandler, None] = {}
        self._serving: set[RequestHandler] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._serving)

    def bound(self, server: web.Server, most: int) -> None:
        """Follows the connections of a server, and keeps their number at `most` where possible."""
        made, lost = server.connection_made, server.connection_lost

        def connection_made(handler: RequestHandler, *rest: object) -> None:
            made(handler, *rest)  # type: ignore[arg-type]
            self._waiting[handler] = None
            if len(self) > most and len(self._waiting) > LEAST_WAITING:
                _cut(next(iter(self._waiting)))

        def connection_lost(handler: RequestHandler, *rest: object) -> None:
            self._waiting.pop(handler, None)
            self._serving.discard(handler)
            lost(handler, *rest)  # type: ignore[arg-type]

        server.connection_made = connection_made  # type: ignore[assignment]
        server.connection_lost = connection_lost  # type: ignore[assignment]

    @contextmanager
    def serving(self, request: web.Request) -> Iterator[None]:
        """Keeps the connection of a request that has arrived whole."""
        handler = request.protocol
        known = handler in self._waiting
        if known:
            del self._waiting[handler]
            self._serving.add(handler)
        try:
            yield
        finally:
            if known and handler in self._serving:
                self._serving.discard(handler)
                self._waiting[handler] = None


CONNECTIONS = web.AppKey("connections", ServedConnections)


def _cut(handler: RequestHandler) -> None:
    transport = handler.transport
    if transport is not None:
        transport.abort()
