"""Where E2B's SDKs put a credential."""

from aiohttp import web

from orchestrator.ground.errors import UnauthorizedError

_KEY = "X-API-KEY"
_INSIDE = "X-Access-Token"


def credential(request: web.Request, *, inside: bool = False) -> str:
    """The key, or the handle that a create answer had as `envdAccessToken`.

    It is in `X-Access-Token` for what is inside a sandbox, in `X-API-KEY` for everything else (some
    SDKs send both everywhere), or a bearer token in both. `Authorization: Basic` names a user
    inside. Raises: UnauthorizedError.
    """
    for name in (_INSIDE, _KEY) if inside else (_KEY, _INSIDE):
        values = request.headers.getall(name, [])
        if len(values) > 1:
            raise UnauthorizedError(f"the header {name} is given twice")
        if values and values[0].strip():
            return values[0].strip()
    for value in request.headers.getall("Authorization", []):
        scheme, _, token = value.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
    raise UnauthorizedError(
        f"a credential is missing: {_KEY} with a key of Paddock's (E2B_API_KEY), or {_INSIDE}"
    )
