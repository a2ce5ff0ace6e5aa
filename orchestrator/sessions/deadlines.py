"""Ends sessions that nobody uses. Deadlines are absolute, so a restart does not move them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from orchestrator.log_context import session_context
from orchestrator.sessions.session import Session
from orchestrator.sessions.view import idle_deadline


class Deadlines:
    """One timer for each live session, looked at again when it is due."""

    def __init__(self, expire: Callable[[Session], Awaitable[None]]) -> None:
        self._expire = expire
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, session: Session) -> None:
        """Starts, or starts again, the session's timer."""
        self.forget(session)
        seconds = _seconds_left(session)
        loop = asyncio.get_running_loop()
        context = session_context(session.id)
        timer = loop.call_later(seconds, self._due, session, context=context)
        self._timers[session.key] = timer

    def forget(self, session: Session) -> None:
        """The session has ended."""
        timer = self._timers.pop(session.key, None)
        if timer is not None:
            timer.cancel()

    def _due(self, session: Session) -> None:
        del self._timers[session.key]
        if not session.live:
            return
        if idle_deadline(session) is None or _seconds_left(session) > 0:
            self.watch(session)  # it was used meanwhile, or is in use
            return
        task = asyncio.create_task(self._run(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, session: Session) -> None:
        await self._expire(session)
        if session.live:
            self.watch(session)  # somebody was quicker

    async def close(self) -> None:
        """Stops every timer."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _seconds_left(session: Session) -> float:
    """Until the idle deadline; a whole idle time-out while the session is in use."""
    deadline = idle_deadline(session)
    if deadline is None:
        return float(session.idle_timeout)
    left = datetime.fromisoformat(deadline) - datetime.now(UTC)
    return max(0.0, left.total_seconds())
