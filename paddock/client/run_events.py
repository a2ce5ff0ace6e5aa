"""What happens in a run, as a client reads it."""

from typing import Any, TypeAlias

from paddock.client.answers import read
from paddock.contract.runs import (
    RUN_EVENTS,
    Run,
    RunText,
    RunTick,
    RunToolCall,
    RunToolResult,
    SpawnEnd,
    SpawnStart,
)
from paddock.contract.spawns import SPAWN_EVENTS
from paddock.contract.turns import TurnStarted

SpawnEvent: TypeAlias = SpawnStart | RunTick | RunText | RunToolCall | RunToolResult | SpawnEnd
RunEvent: TypeAlias = TurnStarted | SpawnEvent | Run


def run_event(name: str, data: Any) -> RunEvent | None:
    """The event of that name; None for one that this client does not know."""
    found = read(RUN_EVENTS[name], data) if name in RUN_EVENTS else None
    assert isinstance(found, RunEvent | None)  # noqa: S101 - those of RUN_EVENTS
    return found


def spawn_event(name: str, data: Any) -> SpawnEvent | None:
    """The event of that name; None for one that this client does not know."""
    found = read(SPAWN_EVENTS[name], data) if name in SPAWN_EVENTS else None
    assert isinstance(found, SpawnEvent | None)  # noqa: S101 - those of SPAWN_EVENTS
    return found
