"""What happens in a run, as a client reads it."""

from typing import Any, TypeAlias

from paddock.client.parsing import read
from paddock.contract.base import Model
from paddock.contract.runs import Run, RunText, RunTick, RunToolCall, RunToolResult
from paddock.contract.turns import TurnStarted

RunEvent: TypeAlias = TurnStarted | RunTick | RunText | RunToolCall | RunToolResult | Run


def run_event(kind: type[Model], data: Any) -> RunEvent:
    """The event of that kind, one of `RUN_EVENTS`."""
    found = read(kind, data)
    assert isinstance(found, RunEvent)  # noqa: S101 - those of RUN_EVENTS
    return found
