"""Puts on record what was stopped: at once where that can be done, else as soon as it can be."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from orchestrator.errors import PaddockError
from orchestrator.sessions.session import Session
from orchestrator.task_scope import TaskScope

log = logging.getLogger(__name__)

# How long whoever stops something waits for its record.
PATIENCE_SECONDS = 5.0
_RETRY_SECONDS = 5.0

Write = Callable[[], Awaitable[object]]


class RecordedBeforeError(Exception):
    """It is on record already: an attempt that was given up was carried out after all."""


@dataclass(slots=True, eq=False)
class _Queue:
    """What is to be recorded of one session, in order."""

    writes: deque[Write] = field(default_factory=deque)
    # Set once everything is on record, or something could not be put there.
    tried: asyncio.Event = field(default_factory=asyncio.Event)


class StopRecords:
    """What sessions were stopped for, and has yet to be written.

    What is still missing when the control plane ends is found by the next start: it looks at
    the sandboxes, which are frozen or gone.
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._tasks = TaskScope("the record of a stop")

    def add(self, session: Session, write: Write) -> None:
        """Has that written, after whatever is still to be written of the session."""
        queue = self._queues.get(session.key)
        if queue is None:
            queue = self._queues[session.key] = _Queue()
            self._tasks.spawn(self._write_all(session, queue))
        queue.writes.append(write)

    async def recorded(self, session: Session) -> bool:
        """Whether everything is on record; waits for that, but not for long."""
        queue = self._queues.get(session.key)
        if queue is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await queue.tried.wait()
        return session.key not in self._queues

    async def _write_all(self, session: Session, queue: _Queue) -> None:
        while queue.writes:
            try:
                await queue.writes[0]()
            except PaddockError as error:
                if not queue.tried.is_set():
                    log.error("%s was stopped, without a record yet: %s", session.id, error.detail)
                queue.tried.set()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except RecordedBeforeError:
                log.info("what session %s was stopped for is on record", session.id)
            except Exception:
                log.exception("what session %s was stopped for can't be recorded", session.id)
            queue.writes.popleft()
        del self._queues[session.key]
        queue.tried.set()

    async def close(self) -> None:
        """Gives up what could not be written."""
        await self._tasks.close()
        for key in self._queues:
            log.error("what the session of key %s was stopped for is not on record", key)
