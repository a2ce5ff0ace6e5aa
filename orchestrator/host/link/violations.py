"""How a sandbox's agent broke the protocol: recorded, and counted."""

import logging
from collections.abc import Awaitable, Callable

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.task_scope import TaskScope

log = logging.getLogger(__name__)

# Our agent never breaks the protocol. This many violations are recorded; then it is cut off.
_MOST_VIOLATIONS = 16
_LONGEST_REASON = 500


class Violations:
    """The violations of one link."""

    def __init__(self, record: Callable[[str], Awaitable[None]]) -> None:
        self._record = record
        self._count = 0
        self._reporting = TaskScope("the record of a broken protocol")

    def add(self, reason: str) -> bool:
        """Records one more. Returns whether the agent must be cut off now."""
        self._count += 1
        if self._count <= _MOST_VIOLATIONS:
            self._reporting.spawn(self._report(reason[:_LONGEST_REASON]))
        return self._count == _MOST_VIOLATIONS

    async def drain(self) -> None:
        """Waits until they are on record."""
        await self._reporting.drain()

    async def _report(self, reason: str) -> None:
        try:
            await self._record(reason)
        except PaddockError as error:
            log.warning("a sandbox agent broke the protocol, unrecorded: %s", error.detail)
        except Exception:
            log.exception("a sandbox agent broke the protocol, unrecorded")
