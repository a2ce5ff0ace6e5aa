"""`session.spawn`: what it is given, and when it is refused."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

from paddock.app.agent import Agent
from paddock.app.execution import Execution
from paddock.app.hooks import AppHooks
from paddock.app.messages import Input, ToolCall
from paddock.app.reference import Workspace
from paddock.app.runner import Model, Runner
from paddock.app.settings import AppSettings, at_least_one
from paddock.app.tools import as_tools

_MOST_DEPTH = 10
_MOST_SPAWNS = 100


class SpawnError(RuntimeError):
    """A child that may not be spawned."""


class SpawnDepthError(SpawnError):
    """The parent is as deep as a session may be."""

    def __init__(self) -> None:
        super().__init__(f"Maximum spawn depth ({_MOST_DEPTH}) exceeded")


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """What a spawn is given; `call` is the call of a tool that spawns."""

    agent: Agent
    input: Input
    model: Model | None
    runner: Runner | None
    max_ticks: int | None
    label: str | None
    workspace: Workspace
    call: ToolCall | None

    def settings(self, parent: AppSettings) -> AppSettings:
        """The parent's, with what the agent and the spawn change, and without its hooks.

        Raises: ValueError.
        """
        agent = self.agent
        level = agent.level or parent.level
        if self.workspace == "shared" and level != parent.level:
            raise ValueError("level: a child that shares its parent's sandbox has its level")
        ticks = parent.max_ticks if self.max_ticks is None else self.max_ticks
        return replace(
            parent,
            model=self.model or agent.model or parent.model,
            runner=self.runner or parent.runner,
            functions=parent.functions if agent.tools is None else as_tools(agent.tools),
            level=level,
            system=parent.system if agent.system is None else agent.system,
            hooks=AppHooks(),
            max_ticks=at_least_one("max_ticks", ticks),
        )


class Spawn:
    """Runs an agent in a child, and returns the run's handle."""

    def __init__(
        self, start: Callable[[SpawnRequest], Execution], call: ToolCall | None = None
    ) -> None:
        self._start = start
        self._call = call

    def __call__(
        self,
        agent: Agent | None,
        input: Input,
        *,
        model: Model | None = None,
        runner: Runner | None = None,
        max_ticks: int | None = None,
        label: str | None = None,
        workspace: Workspace = "own",
    ) -> Execution:
        """Runs an agent in a child, which ends with its run.

        Args:
            agent: None: the same as the parent.
            model, runner, max_ticks: instead of the parent's.
            label: a name for events and for the child's sandbox.
            workspace: `own`: the child has a sandbox and an empty workspace; `read-only`: a sandbox
                that sees the parent's workspace; `shared`: the parent's sandbox itself.

        Raises: SessionClosedError; SpawnDepthError; SpawnError after 100 spawns in one run and its
        children; ValueError, TypeError for wrong arguments.
        """
        if workspace not in get_args(Workspace):
            raise ValueError(f"workspace must be one of {', '.join(get_args(Workspace))}")
        return self._start(
            SpawnRequest(
                agent=agent or Agent(),
                input=input,
                model=model,
                runner=runner,
                max_ticks=max_ticks,
                label=label,
                workspace=workspace,
                call=self._call,
            )
        )


def check_spawn(depth: int, spawned: int) -> None:
    """Whether a session may spawn; `spawned` is what its run and that one's children have.

    Raises: SpawnDepthError, SpawnError.
    """
    if depth >= _MOST_DEPTH:
        raise SpawnDepthError
    if spawned >= _MOST_SPAWNS:
        raise SpawnError(f"a run and its children may spawn {_MOST_SPAWNS} children in all")
