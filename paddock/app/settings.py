"""What the sessions of an app share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock.app.hooks import AppHooks
from paddock.app.runner import Model, Runner
from paddock.app.tools import AppTool, by_name


@dataclass(frozen=True, slots=True)
class AppSettings:
    """An app's model, tools and limits; `model_seconds` and `tool_seconds` are of one call.

    `tools` are those of the runner and `functions`, by name. Raises: ValueError for two tools of
    one name.
    """

    model: Model
    runner: Runner
    functions: tuple[AppTool, ...]
    level: str
    system: str
    hooks: AppHooks
    max_ticks: int
    max_timeline_entries: int
    max_timeline_bytes: int
    model_seconds: float
    tool_seconds: float
    tools: Mapping[str, AppTool] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", by_name((*self.runner.tools(), *self.functions)))


def at_least_one(name: str, value: int) -> int:
    """The value. Raises: ValueError if it is less than 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1")
    return value
