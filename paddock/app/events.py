"""What happens in a run, as events."""

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "start", "tick_start", "text", "tool_call", "tool_result", "tick_end", "end",
    "spawn_start", "spawn_end",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class AppEvent:
    """One event, and what belongs to it.

    `spawn_path` is of a child's event: the spawns that lead to the child, the outermost first.
    """

    kind: Kind
    data: dict[str, Any] = field(default_factory=dict)
    spawn_path: tuple[str, ...] = ()
