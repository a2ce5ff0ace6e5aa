"""What a request of OpenHands passes: its credential."""

from aiohttp import web

from orchestrator.ground.errors import UnauthorizedError

_HEADER = "X-Session-API-Key"


def credential(request: web.Request) -> str:
    """The key or handle. Raises: UnauthorizedError."""
    values = request.headers.getall(_HEADER, [])
    if len(values) != 1 or not values[0].strip():
        raise UnauthorizedError(f"the header {_HEADER} is missing: a key or the session's handle")
    return values[0].strip()
