"""Makes room for another sandbox on this host: what nobody uses gives way."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from orchestrator.host.node.base import Node, Resources
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sessions import admission
from orchestrator.settings.settings import Settings
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session


class RoomMade(NamedTuple):
    """The host's free resources, and the sessions that were suspended, the first one first."""

    left: Resources
    gave_way: tuple[Session, ...]


class SandboxRoom:
    """The host's room for sandboxes: `make` it, then `admit` without waiting in between."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        pool: WarmPool,
        sessions: Registry,
        suspend_one: Callable[[], Awaitable[tuple[Session, ...] | None]],
    ) -> None:
        """`suspend_one` is that of `Suspensions`."""
        self._settings = settings
        self._node = node
        self._pool = pool
        self._registry = sessions
        self._suspend_one = suspend_one

    async def make(self) -> RoomMade:
        """Has sandboxes that wait, and idle sessions, give way.

        Raises: CapacityExhaustedError if its disk does not answer; AuditUnavailableError.
        """
        left = await self._resources()
        while self._short_of_memory(left) and await self._pool.give_up_one():
            left = await self._resources()
        gave_way: tuple[Session, ...] = ()
        while self._full and (suspended := await self._suspend_one()) is not None:
            gave_way += suspended
        return RoomMade(left, gave_way)

    def admit(self, made: RoomMade) -> None:
        """Raises CapacityExhaustedError if there is no room for another sandbox."""
        self._admit(self._registry.holding, made.left)

    async def check(self, sandboxes: int, memory_bytes: int) -> None:
        """Raises CapacityExhaustedError if the host has no room besides that many sandboxes.

        Above the lowest free memory, that many bytes must be free, too.
        """
        self._admit(sandboxes, await self._resources(), memory_bytes)

    @property
    def _full(self) -> bool:
        return self._registry.holding >= self._settings.max_active

    def _short_of_memory(self, left: Resources) -> bool:
        return left.free_memory_bytes < self._settings.min_free_memory_bytes

    async def _resources(self) -> Resources:
        try:
            return await self._node.resources()
        except OSError:  # includes TimeoutError
            raise admission.silent() from None

    def _admit(self, sandboxes: int, left: Resources, memory_bytes: int = 0) -> None:
        settings = self._settings
        admission.admit(
            sandboxes,
            settings.max_active,
            left,
            settings.min_free_memory_bytes + memory_bytes,
            settings.min_free_disk_bytes,
        )
