"""Runners: how input reaches the model, and who does its calls of tools."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from paddock.app.messages import Entry, Reply, ToolCall
from paddock.app.reference import SessionRef
from paddock.app.snapshot import AppSnapshot
from paddock.app.tools import AppTool
from paddock.client.session import Session


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
        """Once, before the first tick of a session."""

    async def prepare_model_input(self, session: SessionRef, given: ModelInput) -> ModelInput:
        """Before each call of the model: what it gets instead."""
        return given

    async def execute_tool_call(
        self, session: SessionRef, call: ToolCall, tool: AppTool, proceed: Next
    ) -> ToolResult:
        """For each call of a tool: `proceed()` does it."""
        return await proceed()

    async def on_persist(self, session: SessionRef, snapshot: AppSnapshot) -> AppSnapshot:
        """Before each save: what is saved instead."""
        return snapshot

    async def on_restore(self, session: SessionRef, snapshot: AppSnapshot) -> None:
        """Once, for a session that comes from the store."""

    async def on_destroy(self, session: SessionRef) -> None:
        """Once, when a session is closed."""

    def tools(self) -> Sequence[AppTool]:
        """Tools of the runner itself."""
        return ()

    def sandbox(self, session: SessionRef) -> Session | None:
        """The session's sandbox, once it has one."""
        return None
