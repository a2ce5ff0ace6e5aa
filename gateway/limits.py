"""What one caller, and all of them, may have open here.

A node counts by keys, which it knows. A gateway counts by what is presented, of which it keeps a
digest, once it is known to be a credential: a key of the cluster, or what a node has let in. All
else could be invented for each request, so it counts for the address that it comes from.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web

from orchestrator.ground.counts import Counts
from orchestrator.ground.errors import (
    CapacityExhaustedError,
    RateLimitedError,
    UnauthorizedError,
)
from orchestrator.ground.limits import OPEN_REQUESTS
from orchestrator.rules.access.keys import KeyRing

_RETRY_SECONDS = 1.0
_ALL = ""
# Where clients put a credential: E2B's have a header of their own, its older ones another.
_CREDENTIALS = ("Authorization", "X-API-Key", "X-Access-Token", "Sec-WebSocket-Protocol")
# Credentials that nodes have let in, at 150 bytes each; the least recently used are forgotten.
_MOST_KNOWN = 65_536


class GatewayLimits(NamedTuple):
    """Limits of a gateway. A node's own limits hold besides."""

    # Requests, streams and WebSockets that are open: of one known credential, of one address that
    # brings none, and of all.
    of_credential: int = 4096
    of_address: int = 256
    of_all: int = 16_384
    # Bodies that are read before they are passed on, because they say where: one, and all.
    body_bytes: int = 8 * 2**20
    all_bodies_bytes: int = 64 * 2**20


GATEWAY_LIMITS = GatewayLimits()


class Open:
    """Counts what is open."""

    def __init__(self, limits: GatewayLimits, keys: KeyRing) -> None:
        """`keys` are those of the cluster."""
        self._limits = limits
        self._keys = keys
        self._callers = Counts[bytes](limits.of_credential)
        self._addresses = Counts[str](limits.of_address)
        self._all = Counts[str](limits.of_all)
        # In order of use.
        self._known: OrderedDict[bytes, None] = OrderedDict()

    @property
    def total(self) -> int:
        """How many requests are open."""
        return self._all.total()

    @contextmanager
    def counted(self, request: web.Request, *, proves: bool = False) -> Iterator[None]:
        """Counts a request until the end of the block.

        `proves`: a node lets in only credentials by it, those that `presented` finds. Raises:
        RateLimitedError, CapacityExhaustedError.
        """
        secret = presented(request)
        caller = None if secret is None else digest_of(secret)
        with ExitStack() as place, self._all.taken(_ALL) as has_room:
            if caller is not None and self._is_known(caller, secret or ""):
                may = place.enter_context(self._callers.taken(caller))
                most = self._callers.most
            else:
                may = place.enter_context(self._addresses.taken(request.remote or ""))
                most = self._addresses.most
            if not may:
                raise RateLimitedError(
                    f"{most} requests of this caller are open: finish some first",
                    limit=OPEN_REQUESTS,
                    retry_after=_RETRY_SECONDS,
                )
            if not has_room:
                raise CapacityExhaustedError(
                    f"{self._limits.of_all} requests are open here, the most of a gateway",
                    retry_after=_RETRY_SECONDS,
                )
            if proves and caller is not None:
                request[_UNPROVED] = _Unproved(self, caller, place)
            yield

    def _is_known(self, caller: bytes, secret: str) -> bool:
        if caller in self._known:
            self._known.move_to_end(caller)
            return True
        try:
            return self._keys.authenticate(secret) is not None
        except UnauthorizedError:
            return False

    def let_in(self, caller: bytes, place: ExitStack) -> None:
        """From now on, what it has open counts for the caller, also what `place` counts."""
        if caller in self._known:
            return
        self._known[caller] = None
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        # It has begun, so it may be one too many.
        place.close()
        place.enter_context(self._callers.taken(caller))

    def refuse(self, caller: bytes) -> None:
        """The caller is not known any more."""
        self._known.pop(caller, None)


class _Unproved(NamedTuple):
    """A request whose credential its answer proves, or not."""

    open: Open
    caller: bytes
    place: ExitStack


_UNPROVED = web.RequestKey("unproved", _Unproved)


def answered(request: web.Request, status: int) -> None:
    """A node has answered the request with that status."""
    unproved = request.get(_UNPROVED)
    if unproved is None:
        return
    if status == HTTPStatus.UNAUTHORIZED:
        unproved.open.refuse(unproved.caller)
    elif status < HTTPStatus.BAD_REQUEST:
        unproved.open.let_in(unproved.caller, unproved.place)


def presented(request: web.Request) -> str | None:
    """The key, handle or ticket that the caller presents; None: nothing."""
    for name in _CREDENTIALS:
        found = request.headers.get(name)
        if found is not None:
            scheme, _, rest = found.partition(" ")
            if scheme.lower() == "bearer":
                return rest.strip()
            if scheme.lower() != "basic":  # it names a user within a sandbox
                return found
    return None


def digest_of(secret: str) -> bytes:
    """What is kept of it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
