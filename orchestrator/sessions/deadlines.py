"""When sessions end automatically. Deadlines are absolute, so a restart does not move them."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from orchestrator.ground.errors import PaddockError, ValidationError
from orchestrator.ground.log_context import session_context
from orchestrator.ground.task_scope import TaskScope
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.settings.groups.lifetimes import LifetimeSettings
from orchestrator.state.requests import NewTimeouts
from orchestrator.state.session import Session
from orchestrator.state.terms import Terms
from paddock.contract.words import IdleAction, Status

log = logging.getLogger(__name__)

# An end that could not be recorded is retried after this time.
_RETRY_SECONDS = 5.0


class Deadline(StrEnum):
    """The deadlines of a session."""

    IDLE = "idle"
    WALL = "wall"
    BUDGET = "budget"


def deadlines(session: Session, terms: Terms | None = None) -> Mapping[Deadline, datetime]:
    """The session's present deadlines, or those by other terms; none once it is over.

    Idle: nothing happened in it and its children for the time-out; it does not apply while the
    session is paused, is used, or is suspended because it was idle. Wall: it has existed for the
    time-out. Budget: its time is used up. The last two continue during a pause.
    """
    found: dict[Deadline, datetime] = {}
    terms = terms or session.terms
    if not session.live:
        return found
    rests = session.suspended and session.idle_action is IdleAction.SUSPEND
    if session.status is Status.ACTIVE and not session.in_use and not rests:
        last = datetime.fromisoformat(session.latest_activity_at)
        found[Deadline.IDLE] = last + timedelta(seconds=terms.idle_timeout)
    if terms.wall_timeout is not None:
        began = session.budget.started_at
        found[Deadline.WALL] = began + timedelta(seconds=terms.wall_timeout)
    if session.budget.deadline is not None:
        found[Deadline.BUDGET] = session.budget.deadline
    return found


def due(session: Session, now: datetime, terms: Terms | None = None) -> Deadline | None:
    """The deadline that ends the session now, or would by other terms: the earliest one passed."""
    if not session.live:
        return None
    if session.budget.exceeded is not None:
        return Deadline.BUDGET
    passed = [(moment, name) for name, moment in deadlines(session, terms).items() if moment <= now]
    return min(passed)[1] if passed else None


def changed(session: Session, wanted: NewTimeouts, now: datetime) -> Terms:
    """The session's terms with these time-outs, lengthened as far as `keep_alive` needs it.

    Its idle time-out begins anew with the change, because that is on record as an activity.
    """
    terms = session.terms
    idle = terms.idle_timeout if wanted.idle is None else wanted.idle
    wall = terms.wall_timeout if wanted.wall is None else wanted.wall
    if wanted.keep_alive is not None:
        idle = max(idle, wanted.keep_alive)
        if wall is not None:
            lived = math.ceil((now - session.budget.started_at).total_seconds())
            wall = max(wall, lived + wanted.keep_alive)
    return replace(terms, idle_timeout=idle, wall_timeout=wall)


def check_timeouts(
    settings: LifetimeSettings,
    bounds: KeyBounds,
    terms: Terms,
    before: Terms | None = None,
    place: str = "",
) -> None:
    """Raises ValidationError for a time-out that is longer than the operator or the key permits.

    One that is as in the terms `before` is accepted. `place` is that of the members in the request.
    """
    for name, operators, keys in (
        ("idle_timeout", settings.idle_timeout_max, bounds.max_idle_timeout),
        ("wall_timeout", settings.wall_timeout_max, bounds.max_wall_timeout),
    ):
        seconds, longest = getattr(terms, name), shortest(operators, keys)
        kept = before is not None and seconds == getattr(before, name)
        if kept or seconds is None or longest is None or seconds <= longest:
            continue
        whose = f", the max_{name} of this key" if longest == keys else ""
        field = f"{place}{name}"
        raise ValidationError(f"{field} may be at most {longest} seconds{whose}", field=field)


def shortest(*timeouts: int | None) -> int | None:
    """The shortest of these time-outs, of which None is none; None if there is none."""
    return min((seconds for seconds in timeouts if seconds is not None), default=None)


class Deadlines:
    """One timer per live session, at its earliest deadline, which is then checked again."""

    def __init__(self, expire: Callable[[Session], Awaitable[None]]) -> None:
        self._expire = expire
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks = TaskScope("the end of a session")
        self._closed = False

    def watch(self, session: Session) -> None:
        """Starts or restarts the session's timer."""
        self._start(session, _seconds_left(session, datetime.now(UTC)))

    def clock_changed(self, sessions: Collection[Session], forward: timedelta) -> None:
        """Keeps the time that each session has left, and restarts the timers of those watched."""
        for session in sessions:
            session.restate(forward)
        for session in sessions:
            if session.key in self._timers:
                self.watch(session)

    def _start(self, session: Session, seconds: float) -> None:
        self.forget(session)
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        context = session_context(session.id, session.secrets.cut)
        timer = loop.call_later(seconds, self._due, session, context=context)
        self._timers[session.key] = timer

    def forget(self, session: Session) -> None:
        """Removes a session that has ended."""
        timer = self._timers.pop(session.key, None)
        if timer is not None:
            timer.cancel()

    def _due(self, session: Session) -> None:
        del self._timers[session.key]
        if not session.live:
            return
        if due(session, datetime.now(UTC)) is None:
            self.watch(session)  # it was used meanwhile, or is in use
            return
        self._tasks.spawn(self._run(session))

    async def _run(self, session: Session) -> None:
        try:
            await self._expire(session)
        except PaddockError as error:
            log.error("session %s is over, but can't be ended: %s", session.id, error.detail)
            self._start(session, _RETRY_SECONDS)
        except Exception:
            log.exception("session %s is over, but can't be ended", session.id)
            self._start(session, _RETRY_SECONDS)
        else:
            if session.live:
                self.watch(session)  # it was ended by another caller

    async def close(self) -> None:
        """Stops every timer, and starts none any more."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._tasks.close()


def _seconds_left(session: Session, now: datetime) -> float:
    """Seconds until the next check: the earliest deadline, or a whole idle time-out if in use."""
    if session.budget.exceeded is not None:
        return 0.0
    found = deadlines(session)
    moments = list(found.values())
    if Deadline.IDLE not in found:
        moments.append(now + timedelta(seconds=session.terms.idle_timeout))
    return max(0.0, (min(moments) - now).total_seconds())
