"""Identifies the caller."""

from collections.abc import Mapping

from aiohttp import web

from api.access import ROLES, Access
from orchestrator.access.keys import Principal, Role, digest, is_handle
from orchestrator.control_plane import ControlPlane
from orchestrator.errors import PermissionDeniedError, UnauthorizedError

_REFUSALS: Mapping[Role, str] = {
    Role.HANDLE: "a session's handle may not do this: it needs an API key",
    Role.VIEWER: "a viewer's key may not do this: it only reads",
    Role.METRICS: "this key may read the metrics, and nothing else",
}
NOBODY = Principal("nobody", Role.HANDLE)


def authorize(plane: ControlPlane, request: web.Request, access: Access) -> Principal:
    """The caller, if their credential is sufficient.

    The session layer itself checks who owns a session. Raises: UnauthorizedError,
    PermissionDeniedError.
    """
    if access is Access.OPEN:
        return NOBODY
    principal = _identify(plane, _token(request))
    if principal.role not in ROLES[access]:
        raise PermissionDeniedError(_REFUSALS[principal.role])
    return principal


def _token(request: web.Request) -> str:
    values = request.headers.getall("Authorization", [])
    if not values:
        raise UnauthorizedError("an Authorization header is missing: Bearer <key or handle>")
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise UnauthorizedError("the Authorization header must be: Bearer <key or handle>")
    return token.strip()


def _identify(plane: ControlPlane, token: str) -> Principal:
    """Finds a credential by its digest, so that timing reveals nothing about a secret."""
    if is_handle(token):
        session = plane.sessions.by_handle(digest(token))
        if session is not None:
            return Principal(f"handle:{session.id}", Role.HANDLE, session.key, session.owner)
    else:
        principal = plane.keys.authenticate(token)
        if principal is not None:
            return principal
    raise UnauthorizedError("the key or handle is not known")
