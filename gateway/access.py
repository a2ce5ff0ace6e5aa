"""Who calls, for what a gateway answers itself. What is passed on, the node decides."""

from collections.abc import Collection

from aiohttp import web

from orchestrator.ground.errors import PermissionDeniedError, UnauthorizedError
from orchestrator.rules.access.keys import KeyRing, Principal, Role

READERS = frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER})
ADMINS = frozenset({Role.ADMIN})
MEASURERS = frozenset({Role.ADMIN, Role.METRICS})


def authorize(keys: KeyRing, request: web.Request, roles: Collection[Role]) -> Principal:
    """The caller, whose key has one of the roles; a handle has none of them.

    Raises: UnauthorizedError, PermissionDeniedError.
    """
    values = request.headers.getall("Authorization", [])
    scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthorizedError("an Authorization header is missing: Bearer <key>")
    principal = keys.authenticate(token.strip())
    if principal is None:
        raise UnauthorizedError("the key is not known here, or is a session's handle")
    if principal.role not in roles:
        named = "|".join(sorted(roles))
        raise PermissionDeniedError(f"this needs a key with the role {named}")
    return principal


def owner_of(keys: KeyRing, request: web.Request) -> str | None:
    """The name of the caller's key, if it is a valid one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    try:
        principal = keys.authenticate(token.strip())
    except UnauthorizedError:
        return None
    return None if principal is None else principal.name
