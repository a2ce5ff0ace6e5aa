"""What the sessions of an app share."""

from collections.abc import Mapping
from dataclasses import dataclass

from paddock.app.hooks import AppHooks
from paddock.app.runner import Model, Runner
from paddock.app.tools import AppTool


@dataclass(frozen=True, slots=True)
class AppSettings:
    """An app's model, tools and limits; `model_seconds` and `tool_seconds` are of one call."""

    model: Model
    runner: Runner
    tools: Mapping[str, AppTool]
    level: str
    system: str
    hooks: AppHooks
    max_ticks: int
    max_timeline_entries: int
    model_seconds: float
    tool_seconds: float
