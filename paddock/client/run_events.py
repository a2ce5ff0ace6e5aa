"""What happens in a run, as a client reads it."""

from typing import Any, TypeAlias

from paddock.client.answers import read
from paddock.contract.base import Model
from paddock.contract.runs import (
    Run,
    RunText,
    RunTick,
    RunToolCall,
    RunToolResult,
    SpawnEnd,
    SpawnStart,
)
from paddock.contract.turns import TurnStarted

SpawnEvent: TypeAlias = SpawnStart | RunTick | RunText | RunToolCall | RunToolResult | SpawnEnd
RunEvent: TypeAlias = TurnStarted | SpawnEvent | Run


def run_event(kind: type[Model], data: Any) -> RunEvent:
    """The event of that kind, one of `RUN_EVENTS`."""
    found = read(kind, data)
    assert isinstance(found, RunEvent)  # noqa: S101 - those of RUN_EVENTS
    return found


def spawn_event(kind: type[Model], data: Any) -> SpawnEvent:
    """The event of that kind, one of `SPAWN_EVENTS`."""
    found = read(kind, data)
    assert isinstance(found, SpawnEvent)  # noqa: S101 - those of SPAWN_EVENTS
    return found
