"""Counters of one session, from what is on record about it. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from orchestrator.state.session import Session

# What a client asked of the sandbox and what policy allowed.
_TOOL_CALLS = ("command.start", "pty.open", "pty.interaction", "file.")


class Telemetry(NamedTuple):
    """The counters; `duration_ms` is from the creation to the end, or until now."""

    tool_calls: int
    events_emitted: int
    episode_count: int
    started_at: str
    duration_ms: int


def telemetry(session: Session, counts: Mapping[tuple[str, str], int], now: datetime) -> Telemetry:
    """The session's counters; `counts` are its events by operation and decision."""
    ended = session.termination
    until = now if ended is None else datetime.fromisoformat(ended.terminated_at)
    lasted = until - datetime.fromisoformat(session.created_at)
    return Telemetry(
        tool_calls=sum(
            events
            for (operation, decision), events in counts.items()
            if operation.startswith(_TOOL_CALLS) and decision != "deny"
        ),
        events_emitted=sum(counts.values()),
        episode_count=session.episodes,
        started_at=session.created_at,
        duration_ms=max(0, int(lasted.total_seconds() * 1000)),
    )
