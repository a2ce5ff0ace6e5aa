"""Who calls, for what a gateway answers itself. What is passed on, the node decides."""

from collections.abc import Collection

from aiohttp import web

from orchestrator.ground.errors import PermissionDeniedError, UnauthorizedError
from orchestrator.rules.access.key_scopes import check_scope
from orchestrator.rules.access.keys import Principal, Role

READERS = frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER})
ADMINS = frozenset({Role.ADMIN})
E2B_PATH = "/compat/e2b/"
MEASURERS = frozenset({Role.ADMIN, Role.METRICS})


def check(principal: Principal | None, roles: Collection[Role], scope: str) -> Principal:
    """The caller, who has one of the roles, and the scope; a handle has none of them.

    Raises: UnauthorizedError, PermissionDeniedError.
    """
    if principal is None:
        raise UnauthorizedError("the key is not known here, or is a session's handle")
    if principal.role not in roles:
        named = "|".join(sorted(roles))
        raise PermissionDeniedError(f"this needs a key with the role {named}")
    check_scope(principal.scopes, scope)
    return principal


def token_of(request: web.Request) -> str:
    """What the caller presents, or nothing. E2B's clients have headers of their own."""
    if request.path.startswith(E2B_PATH):
        # In the order in which a node looks at them.
        for name in ("X-API-KEY", "X-Access-Token"):
            found = request.headers.get(name, "").strip()
            if found:
                return found
    values = request.headers.getall("Authorization", [])
    scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
