"""Pages of other origins that may call the API, as the operator lists them (CORS).

A browser asks before it sends a page's request with a credential to another origin, and lets the
page read the answer only if that permits it. A key or handle travels in `Authorization` alone, and
no cookie counts here, so a page without one can do nothing.
"""

from collections.abc import Iterable

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from api.http.auth import check_origin
from api.shape import preconditions
from api.shape.operation import Operation
from orchestrator.ground.traces.traceparent import TRACEPARENT

# What pages of other origins may call: the API, but not the console and what only monitors read.
_PATHS = ("/api/", "/readyz")
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
# Those that a page must be permitted to send.
_SENT = (
    *("Authorization", "Content-Type", "Last-Event-ID"),
    *("Mcp-Session-Id", "MCP-Protocol-Version", TRACEPARENT),
    *preconditions.HEADERS,
)
# Those that it must be permitted to read, besides those of the operations.
_READ = ("Allow", "Mcp-Session-Id", "Retry-After", "WWW-Authenticate", "X-Request-Id")
# A browser need not ask again for two hours, the longest time that all of them accept.
_KEPT_SECONDS = 7200


class Cors:
    """What browsers are told about the origins on the list, which get no cookies or other state."""

    def __init__(self, origins: Iterable[str], operations: Iterable[Operation]) -> None:
        """`origins` are as browsers send them; `operations` those whose headers may be read."""
        self._origins = frozenset(origins)
        replies = (reply for each in operations for reply in each.replies.values())
        read = {name for reply in replies for name in reply.headers}
        self._read = ", ".join(sorted(read | set(_READ)))

    def preflights(self) -> Middleware:
        """Answers what a browser asks first: that needs no credential, and reads nothing."""

        @web.middleware
        async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not _is_preflight(request):
                return await handler(request)
            origins = request.headers.getall(hdrs.ORIGIN)
            check_origin(origins, request.headers.get(hdrs.HOST, ""), self._origins)
            headers = {
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: _METHODS,
                hdrs.ACCESS_CONTROL_ALLOW_HEADERS: ", ".join(_SENT),
                hdrs.ACCESS_CONTROL_MAX_AGE: str(_KEPT_SECONDS),
            }
            return web.Response(status=204, headers=headers)

        return answered

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Lets a page of an origin on the list read the answer, also that of a failure."""
        if not self._origins or not request.path.startswith(_PATHS):
            return
        # Whatever keeps answers must not show one page's to another.
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)
        origins = request.headers.getall(hdrs.ORIGIN, ())
        if len(origins) == 1 and origins[0] in self._origins:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origins[0]
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = self._read


def _is_preflight(request: web.Request) -> bool:
    return (
        request.method == hdrs.METH_OPTIONS
        and request.path.startswith(_PATHS)
        and hdrs.ORIGIN in request.headers
        and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers
    )
