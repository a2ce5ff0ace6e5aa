"""Records what was stopped: at once if possible, else as soon as possible."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from orchestrator.ground.errors import PaddockError, RecordedBeforeError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.state.session import Session

log = logging.getLogger(__name__)

# How long the caller of a stop waits for its record.
PATIENCE_SECONDS = 5.0
_RETRY_SECONDS = 5.0

Write = Callable[[], Awaitable[object]]


@dataclass(slots=True, eq=False)
class _Queue:
    """The pending records of one session, in order."""

    writes: deque[Write] = field(default_factory=deque)
    # Set once everything is recorded, or recording failed.
    tried: asyncio.Event = field(default_factory=asyncio.Event)


class StopRecords:
    """Pending records of why sessions were stopped.

    The next start finds those that are missing when the control plane ends: it checks the
    sandboxes, which are frozen or gone.
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._tasks = TaskScope("the record of a stop")

    def add(self, session: Session, write: Write) -> None:
        """Records it after the session's other pending records."""
        queue = self._queues.get(session.key)
        if queue is None:
            queue = self._queues[session.key] = _Queue()
            self._tasks.spawn(self._write_all(session, queue))
        queue.writes.append(write)

    async def recorded(self, session: Session) -> bool:
        """Whether everything is recorded; waits for it a short time."""
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
                    log.error(
                        "%s was stopped, but this is not recorded yet: %s", session.id, error.detail
                    )
                queue.tried.set()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except RecordedBeforeError:
                log.info("the stop of session %s is recorded", session.id)
            except Exception:
                log.exception("the stop of session %s can't be recorded", session.id)
            queue.writes.popleft()
        del self._queues[session.key]
        queue.tried.set()

    async def close(self) -> None:
        """Gives up pending records."""
        await self._tasks.close()
        for key in self._queues:
            log.error("the stop of the session with key %s is not recorded", key)
