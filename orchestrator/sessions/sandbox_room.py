"""Makes room for another sandbox on this host: what nobody uses gives way."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from orchestrator.ground.errors import CapacityExhaustedError
from orchestrator.host.node.base import Node, Resources
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.settings.settings import Settings
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session

_RETRY_SECONDS = 10


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
        """Removes waiting sandboxes and suspends idle sessions, as far as room is needed.

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
        self._admit(self._registry.with_sandbox, made.left)

    async def check(self, sandboxes: int, memory_bytes: int) -> None:
        """Raises CapacityExhaustedError if the host has no room beside that many sandboxes.

        `memory_bytes` must be free in addition to the memory that must stay free.
        """
        self._admit(sandboxes, await self._resources(), memory_bytes)

    @property
    def _full(self) -> bool:
        return self._registry.with_sandbox >= self._settings.max_active

    def _short_of_memory(self, left: Resources) -> bool:
        return left.free_memory_bytes < self._settings.min_free_memory_bytes

    async def _resources(self) -> Resources:
        try:
            return await self._node.resources()
        except OSError:  # includes TimeoutError
            detail = "the host's disk does not answer in time"
            raise CapacityExhaustedError(detail, retry_after=_RETRY_SECONDS) from None

    def _admit(self, sandboxes: int, left: Resources, memory_bytes: int = 0) -> None:
        settings = self._settings
        admit(
            sandboxes,
            settings.max_active,
            left,
            settings.min_free_memory_bytes + memory_bytes,
            settings.min_free_disk_bytes,
        )


def admit(
    active: int,
    max_active: int,
    resources: Resources,
    min_free_memory_bytes: int,
    min_free_disk_bytes: int,
) -> None:
    """Raises CapacityExhaustedError with `retry_after` if there is no room for another sandbox."""
    if active >= max_active:
        raise CapacityExhaustedError(
            f"{active} of {max_active} sandboxes are in use, and none of their sessions can be "
            "suspended: close one, or raise max_active",
            retry_after=_RETRY_SECONDS,
        )
    short = None
    if resources.free_memory_bytes < min_free_memory_bytes:
        short = "memory"
    elif resources.free_disk_bytes < min_free_disk_bytes:
        short = "disk space"
    if short is not None:
        detail = f"the host is short of {short} for another sandbox"
        raise CapacityExhaustedError(detail, retry_after=_RETRY_SECONDS)
