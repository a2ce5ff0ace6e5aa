"""The connections of a server: how many there may be, and which go when there are too many."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

# As many connections may wait for a request, or bring one, whatever the others do: one of them may
# bring what stops something.
LEAST_WAITING = 64
# Of the process. The API and the ports of sessions may have a third each as connections.
_MOST_DESCRIPTORS = 65_536


def raise_descriptors() -> int:
    """Lets the process open as many descriptors as it may; returns the most of one server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_MOST_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted // 3


class Connections:
    """Cuts the oldest connections that have brought no whole request, if there are too many.

    Such a one costs a client nothing. One whose request is served is held by the limits of its
    caller.
    """

    def __init__(self) -> None:
        # The longest without a request first.
        self._waiting: dict[RequestHandler, None] = {}
        self._serving: set[RequestHandler] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._serving)

    def bound(self, server: web.Server, most: int) -> None:
        """Has the server tell of its connections, of which there are `most` as long as can be."""
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


CONNECTIONS = web.AppKey("connections", Connections)


def _cut(handler: RequestHandler) -> None:
    transport = handler.transport
    if transport is not None:
        transport.abort()
