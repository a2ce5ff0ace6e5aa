"""Who reaches which port: whoever has its link, and keys and handles that may use its session."""

from typing import NamedTuple

from aiohttp import web

from api.http.auth import authorize
from api.http.middleware import PRINCIPAL
from api.previews.own_origin import may_use_cookie, tokens
from api.previews.paths import PreviewPath
from api.shape.access import Access
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import NotFoundError, PaddockError, UnauthorizedError
from orchestrator.sandbox.ports.host_names import NamedPort
from orchestrator.state.open_port import OpenPort
from orchestrator.state.session import Session

# The scope of keys that reach ports.
PORTS = "ports"
NO_LINK = (
    "this address needs a link that holds: this one has expired, or its port is closed. "
    "`paddock port SESSION PORT` opens the port and prints its links. A program can send a key or "
    "the session's handle, as Authorization: Bearer"
)
_NO_COOKIE = (
    "this browser has followed no link to this port that still holds, or a page of another address "
    "asks. `paddock port SESSION PORT` opens the port and prints its links. A program can send a "
    "key or the session's handle, as Authorization: Bearer"
)


class Admitted(NamedTuple):
    """A port for a caller, whose link is in `path`, if they have one.

    `until` is when the link expires, in unix seconds; None: never.
    """

    session: Session
    port: OpenPort
    path: PreviewPath
    until: int | None = None


class Admission:
    """Admits the callers of ports."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def named(self, request: web.Request, named: NamedPort) -> str:
        """The id of the session with that host name. Raises: UnauthorizedError, NotFoundError.

        Without a credential, nobody learns whether it exists.
        """
        session = self._plane.sessions.registry.named(named.session_name)
        if session is not None and session.incarnation == named.incarnation:
            return session.id
        if "Authorization" not in request.headers:
            raise UnauthorizedError(_NO_COOKIE)
        authorize(self._plane, request, Access.WORK, PORTS)
        raise NotFoundError("no session has this host name: `paddock ports SESSION` lists them")

    def admit(self, request: web.Request, path: PreviewPath) -> Admitted:
        """Raises: UnauthorizedError, PermissionDeniedError, NotFoundError."""
        return self._by_link(request, path) or self._by_key(request, path)

    def holds(self, request: web.Request, path: PreviewPath) -> bool:
        """Whether the caller is still admitted."""
        try:
            self.admit(request, path)
        except PaddockError:
            return False
        return True

    def until(self, path: PreviewPath, token: str) -> int | None:
        """When a link's token for the port expires; None if it does not hold."""
        found = self._found(path)
        return None if found is None else self._plane.ports.holds(found[1], token)

    def _found(self, path: PreviewPath) -> tuple[Session, OpenPort] | None:
        session = self._plane.sessions.registry.get(path.session_id)
        port = None if session is None else session.ports.open.get(path.port)
        if session is None or port is None or port.closing:
            return None
        return session, port

    def _by_link(self, request: web.Request, path: PreviewPath) -> Admitted | None:
        """By the token in the address, or in the cookie of the port's own host name."""
        if (found := self._found(path)) is None:
            return None
        for token in _given(request, path):
            until = self._plane.ports.holds(found[1], token)
            if until is not None:
                return Admitted(*found, path._replace(token=token), until)
        return None

    def _by_key(self, request: web.Request, path: PreviewPath) -> Admitted:
        if "Authorization" not in request.headers:
            raise UnauthorizedError(_NO_COOKIE if path.own_host else NO_LINK)
        principal = authorize(self._plane, request, Access.WORK, PORTS)
        request[PRINCIPAL] = principal
        session = self._plane.sessions.finder.find(principal, path.session_id)
        port = session.ports.open.get(path.port)
        if port is None or port.closing:
            raise NotFoundError(f"port {path.port} of the session is not open")
        return Admitted(session, port, path)


def _given(request: web.Request, path: PreviewPath) -> list[str]:
    """The tokens of links with which the caller comes."""
    if not path.own_host:
        return [] if path.token is None else [path.token]
    sent = [*request.headers.items()]
    allowed = may_use_cookie(request.method, sent, request.scheme, request.host)
    return tokens(sent) if allowed else []
