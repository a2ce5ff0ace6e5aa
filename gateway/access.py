"""Who calls, for what a gateway answers itself. What is passed on, the node decides."""

from collections.abc import Collection

from aiohttp import web

from orchestrator.ground.errors import PermissionDeniedError, UnauthorizedError
from orchestrator.rules.access.keys import KeyRing, Principal, Role

READERS = frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER})
ADMINS = frozenset({Role.ADMIN})
_E2B = "/compat/e2b/"
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


def principal_of(keys: KeyRing, request: web.Request) -> Principal | None:
    """The caller, if what is presented is a valid key; E2B's clients have headers of their own."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token if scheme.lower() == "bearer" else ""
    if request.path.startswith(_E2B):
        # In the order in which a node looks at them.
        for name in ("X-Access-Token", "X-API-KEY"):
            token = request.headers.get(name, "").strip() or token
    try:
        return keys.authenticate(token.strip())
    except UnauthorizedError:
        return None
