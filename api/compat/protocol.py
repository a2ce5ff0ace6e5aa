"""What a foreign protocol is: its routes, where its clients put a credential, and its errors."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from api.compat.call import Call
from api.shape.access import Access
from api.shape.context import Kept
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError

_SCOPES = {
    Access.READ: "sessions:read",
    Access.READ_ALL: "sessions:read",
    Access.WORK: "exec",
    Access.MANAGE: "sessions:create",
}


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path, below the protocol's own.

    `access` is the least that the caller needs; each operation that the handler performs demands
    its own besides. `stops`: the request stops something, so it is counted only if it did not.
    `credential` and `failure` are as a protocol's, for a route on which clients do otherwise.
    """

    method: str
    path: str
    access: Access
    handler: Callable[[Call], Awaitable[web.StreamResponse]]
    stops: bool = False
    credential: Callable[[web.Request, ControlPlane, Kept], str] | None = None
    failure: Callable[[PaddockError, str], web.Response] | None = None

    @property
    def scope(self) -> str | None:
        """The scope that a key with scopes needs, besides those of the performed operations.

        What works inside a sandbox may run programs there without an operation of its own. What
        stops something needs no more than its operations do.
        """
        return None if self.stops else _SCOPES.get(self.access)


@dataclass(frozen=True, slots=True)
class OwnPorts:
    """Ports of every session that a protocol serves itself, where ports have host names.

    The address below which these names are serves the routes, too: there, as elsewhere, a request
    names its session in that `header`.
    """

    numbers: Sequence[int]
    header: str
    routes: Sequence[Route]
    # A session's id by what a host name has in its place.
    session_id: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol. Its paths begin with `/compat/`, its name and, if it has one, a session's id.

    `credential` finds the key or handle in a request; it raises UnauthorizedError. `failure` is the
    response to an error in the protocol's own form, with the request's id. `at_root` are routes
    whose paths have nothing before them, because clients leave it out.
    """

    name: str
    path: str
    routes: Sequence[Route]
    credential: Callable[[web.Request], str]
    failure: Callable[[PaddockError, str], web.Response]
    own_ports: OwnPorts | None = None
    at_root: Sequence[Route] = ()
