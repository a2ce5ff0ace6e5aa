"""What the sessions of an app share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paddock.app.agent import AppTool, Model, Runner, SpawnRequest
from paddock.app.hooks import AppHooks
from paddock.app.tools import as_tools, by_name


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


def of_child(parent: AppSettings, asked: SpawnRequest) -> AppSettings:
    """The parent's, with what the agent and the spawn change, and without its hooks.

    Raises: ValueError.
    """
    agent = asked.agent
    level = agent.level or parent.level
    if asked.workspace == "shared" and level != parent.level:
        raise ValueError("level: a child that shares its parent's sandbox has its level")
    ticks = parent.max_ticks if asked.max_ticks is None else asked.max_ticks
    return replace(
        parent,
        model=asked.model or agent.model or parent.model,
        runner=asked.runner or parent.runner,
        functions=parent.functions if agent.tools is None else as_tools(agent.tools),
        level=level,
        system=parent.system if agent.system is None else agent.system,
        hooks=AppHooks(),
        max_ticks=at_least_one("max_ticks", ticks),
    )
