"""Who calls: by a credential, by a page's ticket for a WebSocket, and from which page.

A browser names the page's origin in `Origin`, and lets any page open a WebSocket. Programs that are
no browsers send no `Origin`. A page on another port of the same host may come from a sandbox.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from aiohttp import web

from api.shape.access import ROLES, Access
from api.shape.operation import Operation
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError, PermissionDeniedError, UnauthorizedError
from orchestrator.rules.access.key_scopes import check_scope
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest, is_handle
from orchestrator.rules.access.users import is_user_token

_REFUSALS: Mapping[Role, str] = {
    Role.HANDLE: "a session's handle may not do this: it needs an API key",
    Role.VIEWER: "a viewer's key may not do this: it only reads",
    Role.OPERATOR: "this needs an admin's key",
    Role.METRICS: "this key may read the metrics, and nothing else",
}
# Why what is presented is not accepted, found out before the handler.
REFUSED = web.RequestKey("refused", PaddockError)
FOREIGN_ORIGIN = "foreign-origin"
_ORIGIN = re.compile(r"(https?)://([^/?#@\s]+)")
_USUAL_PORTS = {"http": ":80", "https": ":443"}
# What precedes a ticket among the subprotocols that a page offers.
_TICKET = "ticket."
NOBODY = Principal("nobody", Role.HANDLE)


class Admitted(NamedTuple):
    """The caller, and whether their credential is still valid and sufficient."""

    principal: Principal
    allowed: Callable[[], bool]


def admit(plane: ControlPlane, request: web.Request, operation: Operation) -> Admitted:
    """The caller of an operation. Raises: the errors of `authorize`, also for a ticket."""
    ticket = _ticket_of(request) if operation.socket else None
    if ticket is None:
        principal = authorize(plane, request, operation.access, operation.scope)
        if principal.sha256:  # a user may get another token meanwhile
            return Admitted(principal, lambda: _may_still(plane, principal, operation))
        return Admitted(principal, lambda: _is_allowed(plane, request, operation))
    session = plane.sessions.registry.get(request.match_info["session_id"])
    holder = plane.tickets.redeem(ticket, session)
    check_rights(plane.keys, holder, operation.access, operation.scope)
    return Admitted(holder, lambda: _may_still(plane, holder, operation))


def _ticket_of(request: web.Request) -> str | None:
    """The ticket that a page offers; None without one, or with a credential."""
    if "Authorization" in request.headers:
        return None
    offered = ",".join(request.headers.getall("Sec-WebSocket-Protocol", []))
    found = [name.strip() for name in offered.split(",") if name.strip().startswith(_TICKET)]
    return found[0].removeprefix(_TICKET) if len(found) == 1 else None


def _is_allowed(plane: ControlPlane, request: web.Request, operation: Operation) -> bool:
    try:
        authorize(plane, request, operation.access, operation.scope)
    except PaddockError:
        return False
    return True


def _may_still(plane: ControlPlane, holder: Principal, operation: Operation) -> bool:
    """Whether the holder of a used ticket has a valid key, whose rights are still sufficient."""
    current = plane.keys.current(holder)
    if current is None:
        return False
    try:
        check_rights(plane.keys, current, operation.access, operation.scope)
    except PermissionDeniedError:
        return False
    return True


def authorize(
    plane: ControlPlane, request: web.Request, access: Access, scope: str | None
) -> Principal:
    """The caller, if their credential is sufficient: its role, and its scopes if it has any.

    Operations check themselves who owns a session. Raises: UnauthorizedError,
    PermissionDeniedError.
    """
    if access is Access.OPEN:
        return NOBODY
    token = _token(request)
    refusal = request.get(REFUSED)
    if refusal is not None:
        raise refusal
    principal = identify(plane, token)
    check_rights(plane.keys, principal, access, scope)
    return principal


def check_rights(keys: KeyRing, principal: Principal, access: Access, scope: str | None) -> None:
    """Raises: PermissionDeniedError if the caller's role or its scopes are not sufficient."""
    check_role(principal, access)
    check_scope(keys.scopes(principal), scope)


def check_role(principal: Principal, access: Access) -> None:
    """Raises: PermissionDeniedError if the caller's role is not sufficient."""
    if principal.role not in ROLES[access]:
        raise PermissionDeniedError(_REFUSALS[principal.role])


def _token(request: web.Request) -> str:
    values = request.headers.getall("Authorization", [])
    if not values:
        raise UnauthorizedError("an Authorization header is missing: Bearer <key or handle>")
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise UnauthorizedError("the Authorization header must be: Bearer <key or handle>")
    return token.strip()


def identify(plane: ControlPlane, token: str) -> Principal:
    """Who has that key, handle or verified token. Raises: UnauthorizedError.

    It is found by its digest, so that timing reveals nothing about a secret.
    """
    if is_handle(token):
        session = plane.sessions.finder.by_handle(digest(token))
        if session is not None and plane.keys.holds(
            session.owner, datetime.fromisoformat(session.created_at)
        ):
            return Principal(f"handle:{session.id}", Role.HANDLE, session.key, session.owner)
    else:
        principal = plane.keys.authenticate(token)
        if principal is not None:
            return principal
    if plane.sign_in.enabled and is_user_token(token):
        raise UnauthorizedError("the sign-in is not valid here any more: sign in again")
    raise UnauthorizedError("the key or handle is not known")


async def learn(plane: ControlPlane, request: web.Request) -> None:
    """Verifies a user's token, if one is presented, for which its issuer may be asked.

    Then `identify` knows it, or `REFUSED` says why not.
    """
    values = request.headers.getall("Authorization", [])
    scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not is_user_token(token.strip()):
        return
    try:
        await plane.sign_in.learn(token.strip())
    except PaddockError as error:
        request[REFUSED] = error


def check_origin(origins: Sequence[str], host: str, permitted: Collection[str] = ()) -> None:
    """Checks the values of `Origin`, with the request's `Host`, which is known to be ours.

    `permitted` are other origins whose pages may call the API. Raises: PermissionDeniedError.
    """
    if not origins:
        return
    if len(origins) == 1 and (origins[0] in permitted or is_own(origins[0], host)):
        return
    raise PermissionDeniedError("a page of another origin can't do this", rule=FOREIGN_ORIGIN)


def is_own(origin: str, host: str) -> bool:
    """Whether a page of that origin was served by the host of the request."""
    found = _ORIGIN.fullmatch(origin)
    if found is None:
        return False
    usual = _USUAL_PORTS[found[1]]
    return found[2].lower().removesuffix(usual) == host.strip().lower().removesuffix(usual)
