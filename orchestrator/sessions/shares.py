"""The share of each API key in this instance: its quotas, and its slots to start sandboxes."""

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.ground.fair_queue import FairQueue, Slot
from orchestrator.ground.limits import KeyLimits, KeyUsage, check_quota
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

    def check_new(self, principal: Principal, limits: SessionLimits) -> None:
        """Raises RateLimitedError if another session with those limits exceeds the quota."""
        self._check(principal, KeyUsage(1, limits.cpus, limits.memory_bytes))

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
