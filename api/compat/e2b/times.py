"""How long sandboxes live: E2B's seconds from now as the time-outs of a session."""

import math
from datetime import UTC, datetime
from typing import Any

from api.compat.call import Call
from api.operations.settings import change_settings
from api.shape.context import Context
from api.shape.objects import validated
from orchestrator.sessions.deadlines import shortest
from orchestrator.state.session import Session
from paddock.contract.session_requests import SettingsBody
from paddock.contract.words import MAX_WALL_SECONDS, IdleAction

# How long a paused sandbox is kept, where operator and key permit it.
_PAUSED_SECONDS = 30 * 24 * 3600


def new_times(call: Call, seconds: int, *, pauses: bool) -> dict[str, Any]:
    """The time-outs of a new session that lives that long, or `pauses` after that time idle."""
    idle = _idle(call, seconds)
    if pauses:
        return {"idle_timeout": idle, "idle_action": "suspend"}
    return {"idle_timeout": idle, "idle_action": "end", "wall_timeout": max(1, seconds)}


async def set_time(call: Call, context: Context, seconds: int) -> None:
    """It lives that long from now. Raises: as the operation."""
    session = context.session()
    times: dict[str, Any] = {"idle_timeout": _idle(call, seconds)}
    if not _pauses(session):
        times["wall_timeout"] = _wall(session, seconds)
    await _change(call, context, times)


async def lengthen(call: Call, context: Context, seconds: int) -> None:
    """It lives that long from now, or longer if it would anyway. Raises: as the operation."""
    session = context.session()
    terms = session.terms
    times: dict[str, Any] = {"idle_timeout": max(terms.idle_timeout, _idle(call, seconds))}
    if terms.wall_timeout is not None:
        times["wall_timeout"] = max(terms.wall_timeout, _wall(session, seconds))
    await _change(call, context, times)


async def keep_paused(call: Call, context: Context) -> None:
    """Its time-out is put off while it is paused. Raises: as the operation."""
    session = context.session()
    if session.terms.wall_timeout is None:
        return
    bounds, settings = context.principal.bounds, call.plane.settings
    longest = shortest(settings.wall_timeout_max, bounds.max_wall_timeout)
    wanted = _wall(session, _PAUSED_SECONDS)
    wanted = wanted if longest is None else min(wanted, longest)
    if wanted > session.terms.wall_timeout:
        await _change(call, context, {"wall_timeout": wanted})


def _pauses(session: Session) -> bool:
    """Whether its time is up when it was idle for long enough, and it is suspended then."""
    return session.idle_action is IdleAction.SUSPEND and session.terms.wall_timeout is None


def _idle(call: Call, seconds: int) -> int:
    """A sandbox may be unused for all of its time, if operator and key permit that."""
    bounds = call.context.principal.bounds
    longest = shortest(seconds, call.plane.settings.idle_timeout_max, bounds.max_idle_timeout)
    return max(1, longest or 1)


def _wall(session: Session, seconds: int) -> int:
    """The time-out, which counts from the creation, that is so many seconds away; 0: is over."""
    lived = (datetime.now(UTC) - session.budget.started_at).total_seconds()
    whole = math.ceil(lived) if seconds else math.floor(lived)
    return min(max(1, whole + seconds), MAX_WALL_SECONDS)


async def _change(call: Call, context: Context, times: dict[str, Any]) -> None:
    body = validated(SettingsBody, {"settings": times})
    await call.done(change_settings, context=context, body=body)
