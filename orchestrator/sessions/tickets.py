"""Tickets: pages can't send a credential when they open a WebSocket, so they send one of these.

Each is valid once, for a short time, for the caller who got it and for one session.
"""

import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from orchestrator.ground.errors import UnauthorizedError
from orchestrator.rules.access.keys import KeyRing, Principal, digest
from orchestrator.state.session import Session

SECONDS = 30.0
# Unused tickets of one key; one more replaces the oldest.
MOST_OF_KEY = 32
_BYTES = 24


class _Ticket(NamedTuple):
    principal: Principal
    session_key: str
    until: float


class Tickets:
    """The unused tickets of this instance, in memory, by their digests."""

    def __init__(self, keys: KeyRing, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        # In the order in which they expire.
        self._unused: dict[str, _Ticket] = {}

    def issue(self, principal: Principal, session: Session) -> str:
        """A ticket that holds for SECONDS."""
        self._forget_expired()
        sha256 = principal.sha256
        own = [key for key, held in self._unused.items() if held.principal.sha256 == sha256]
        if len(own) >= MOST_OF_KEY:
            del self._unused[own[0]]
        ticket = secrets.token_urlsafe(_BYTES)
        until = self._clock() + SECONDS
        self._unused[digest(ticket)] = _Ticket(principal, session.key, until)
        return ticket

    def redeem(self, ticket: str, session: Session | None) -> Principal:
        """Uses the ticket up; returns the caller who got it, whose key is still valid.

        Raises: UnauthorizedError, also for a ticket of another session.
        """
        self._forget_expired()
        held = self._unused.pop(digest(ticket), None)
        caller = None if held is None else self._keys.current(held.principal)
        if held is None or caller is None or session is None or held.session_key != session.key:
            raise UnauthorizedError("the ticket is not valid, or was used: get another one")
        return caller

    def _forget_expired(self) -> None:
        now = self._clock()
        while self._unused:
            oldest = next(iter(self._unused))
            if self._unused[oldest].until > now:
                return
            del self._unused[oldest]
