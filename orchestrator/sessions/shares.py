"""The share of each API key in this instance: quotas, slots to start sandboxes, open streams."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from orchestrator.ground.counts import Counts
from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.fair_queue import FairQueue, Slot
from orchestrator.ground.limits import (
    KEY_STREAMS,
    RETRY_SECONDS,
    SESSION_STREAMS,
    KeyLimits,
    KeyUsage,
    check_quota,
)
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.policy.levels import SessionLimits
from orchestrator.settings.settings import Settings
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session

# Sandboxes of one key that wait to be started. A client would not wait behind more of them.
_MOST_WAITING = 100


class Shares:
    """Applies the shares. Admin keys have no quota, but wait for a slot like the others."""

    def __init__(self, settings: Settings, sessions: Registry) -> None:
        self._defaults = settings.key_limits
        self._registry = sessions
        self.slots = FairQueue(settings.max_creating, settings.key_max_creating, _MOST_WAITING)

    async def slot(self, principal: Principal) -> Slot:
        """Waits until the caller may start a sandbox. Raises: RateLimitedError."""
        return await self.slots.take(principal.account)

    def quota(self, principal: Principal) -> KeyLimits:
        """The total quota of the caller's sessions and workspaces."""
        if principal.role is Role.ADMIN:
            return KeyLimits()
        return principal.limits.over(self._defaults)

    def check_new(self, principal: Principal, limits: SessionLimits, count: int = 1) -> None:
        """Raises RateLimitedError if so many more sessions with those limits exceed the quota."""
        usage = KeyUsage(count, count * limits.cpus, count * limits.memory_bytes)
        self._check(principal, usage)

    @contextmanager
    def changing(
        self, principal: Principal, session: Session, limits: SessionLimits
    ) -> Iterator[None]:
        """Also counts the new limits for the session while it changes to them.

        Raises: RateLimitedError if the quota does not allow it to grow to them.
        """
        cpus = limits.cpus - session.limits.cpus
        memory = limits.memory_bytes - session.limits.memory_bytes
        self._check(principal, KeyUsage(0, cpus, memory))
        with self._registry.changing(session, limits):
            yield

    def _check(self, principal: Principal, more: KeyUsage) -> None:
        used = self._registry.usage(principal.account)
        check_quota(self.quota(principal), used, more)


class Streams:
    """Counts open streams: followed events and output, downloads and uploads."""

    def __init__(self, per_session: int, per_key: int) -> None:
        self._per_session = per_session
        # Per key: the key's own streams, and (True) those of all its sessions' handles, counted
        # separately so that they can't use up the key's own.
        self._open: Counts[tuple[str, bool]] = Counts(per_key)

    @contextmanager
    def open(self, principal: Principal, kind: str, session: Session | None) -> Iterator[None]:
        """Counts a stream of that kind, which may belong to no session.

        Raises: RateLimitedError if one more exceeds a limit.
        """
        account = principal.account, principal.role is Role.HANDLE
        if session is not None:
            held = session.streams.total()
            _check(SESSION_STREAMS, "this session has", held, self._per_session)
        whose = "the handles of this key have" if account[1] else "this key has"
        _check(KEY_STREAMS, whose, self._open.of(account), self._open.most)
        of_session = nullcontext() if session is None else session.streaming(kind)
        with of_session, self._open.taken(account):
            yield


def _check(limit: str, whose: str, held: int, most: int) -> None:
    if held >= most:
        raise RateLimitedError(
            f"{whose} {held} streams open, and {limit} is {most}: close some, or wait for their "
            "end",
            limit=limit,
            retry_after=RETRY_SECONDS,
        )
