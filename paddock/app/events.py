"""What happens in a run, as events."""

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "start", "tick_start", "text", "tool_call", "tool_result", "tick_end", "end"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class AppEvent:
    """One event, and what belongs to it."""

    kind: Kind
    data: dict[str, Any] = field(default_factory=dict)
