"""The words of an app that name each other: sessions, tools, models, runners, agents, spawns."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from paddock.app.execution import Execution
from paddock.app.messages import Entry, Input, Reply, ToolCall
from paddock.app.store import AppSnapshot
from paddock.client.session import Session

MOST_DEPTH = 10

Workspace = Literal["own", "read-only", "shared"]
Status = Literal["idle", "running", "closed"]


class _Shown(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def status(self) -> Status: ...
    @property
    def tick(self) -> int: ...
    def snapshot(self) -> AppSnapshot: ...


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A session's id, level, state and snapshot.

    `ephemeral`: nobody will use its files again. A child has a `parent`, perhaps a `label`, and a
    `workspace` that may be its parent's.
    """

    _session: _Shown
    level: str
    ephemeral: bool
    parent: "SessionRef | None" = None
    label: str | None = None
    workspace: Workspace = "own"

    @property
    def id(self) -> str:
        """The session's id; also its sandbox's, unless it is a child."""
        return self._session.id

    @property
    def status(self) -> Status:
        """`idle`, `running` or `closed`."""
        return self._session.status

    @property
    def current_tick(self) -> int:
        """The number of the tick that runs, or of the next one."""
        return self._session.tick + 1

    def snapshot(self) -> AppSnapshot:
        """The session as it is now."""
        return self._session.snapshot()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may use besides its arguments: a parameter of this type receives it.

    `spawn` is the session's; its children end if the call runs out of time.
    """

    session: SessionRef
    sandbox: Session | None
    spawn: "Spawn"


@dataclass(frozen=True, slots=True)
class AppTool:
    """One tool. `call` gets the arguments as JSON text, and returns text for the model.

    With `confirm`, each call needs a yes of the app's `on_tool_confirmation`.
    """

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[str, ToolContext], Awaitable[str]]
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What a tick sends to the model."""

    system: str
    timeline: Sequence[Entry]
    tools: Sequence[AppTool]


Model = Callable[[ModelInput], Awaitable[Reply | str]]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told about a call."""

    text: str
    failed: bool = False


Next = Callable[[], Awaitable[ToolResult]]


class Runner:
    """A runner with no sandbox. Subclasses override what they change."""

    async def on_session_init(self, session: SessionRef) -> None:
        """Called once, before the first tick of a session."""

    async def prepare_model_input(self, session: SessionRef, given: ModelInput) -> ModelInput:
        """Called before each call of the model; returns what it gets."""
        return given

    async def execute_tool_call(
        self, session: SessionRef, call: ToolCall, tool: AppTool, proceed: Next
    ) -> ToolResult:
        """Called for each call of a tool; `proceed()` does the call."""
        return await proceed()

    async def on_persist(self, session: SessionRef, snapshot: AppSnapshot) -> AppSnapshot:
        """Called before each save; returns what is saved."""
        return snapshot

    async def on_restore(self, session: SessionRef, snapshot: AppSnapshot) -> None:
        """Called once, for a session that comes from the store."""

    async def on_destroy(self, session: SessionRef) -> None:
        """Called once, when a session is closed."""

    def tools(self) -> Sequence[AppTool]:
        """Tools of the runner itself."""
        return ()

    def sandbox(self, session: SessionRef) -> Session | None:
        """The session's sandbox, once it has one."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Who works in a child. A member that is None is the parent's.

    Attributes:
        tools: typed functions, or `AppTool`s, besides those of the sandbox.
        level: the permission level of the child's sandbox, never above the parent's.
    """

    system: str | None = None
    model: Model | None = None
    tools: Sequence[AppTool | Callable[..., Any]] | None = None
    level: str | None = None


class SpawnError(RuntimeError):
    """A child that may not be spawned."""


class SpawnDepthError(SpawnError):
    """The parent is as deep as a session may be."""

    def __init__(self) -> None:
        super().__init__(f"Maximum spawn depth ({MOST_DEPTH}) exceeded")


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
