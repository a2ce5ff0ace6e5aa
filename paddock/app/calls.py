"""One call of a tool: found, confirmed, done within its time, and told to the model."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from paddock.app.agent import (
    AppTool,
    Runner,
    SessionRef,
    Spawn,
    SpawnRequest,
    ToolContext,
    ToolResult,
)
from paddock.app.execution import Execution
from paddock.app.messages import ToolCall, clipped
from paddock.app.tools import ToolInputError
from paddock.client.errors import PaddockError

_log = logging.getLogger("paddock.app")
_MOST_RESULT = 48 * 1024
_MOST_ARGUMENTS = 2**20

Confirm = Callable[[ToolCall], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Does the calls of one session. A failure of a tool is told to the model, and ends nothing."""

    runner: Runner
    session: SessionRef
    tools: Mapping[str, AppTool]
    confirm: Confirm
    spawn: Callable[[SpawnRequest], Execution]
    out_of_time: Callable[[ToolCall], None]
    seconds: float

    async def do(self, call: ToolCall) -> ToolResult:
        """The call's result, as the model reads it."""
        found = self.tools.get(call.name)
        if found is None:
            return ToolResult(f"there is no tool {clipped(call.name, 100)}", failed=True)
        if len(call.arguments) > _MOST_ARGUMENTS:
            return ToolResult(f"the arguments have more than {_MOST_ARGUMENTS} characters", True)
        if found.confirm and not await self.confirm(call):
            return ToolResult("the call was not confirmed, and nothing was done", failed=True)
        result = await self._within_time(call, found)
        return ToolResult(clipped(result.text, _MOST_RESULT), result.failed)

    async def _within_time(self, call: ToolCall, found: AppTool) -> ToolResult:
        async def proceed() -> ToolResult:
            sandbox = self.runner.sandbox(self.session)
            context = ToolContext(self.session, sandbox, Spawn(self.spawn, call))
            return ToolResult(await found.call(call.arguments, context))

        try:
            async with asyncio.timeout(self.seconds) as limit:
                return await self.runner.execute_tool_call(self.session, call, found, proceed)
        except (ToolInputError, PaddockError) as error:
            return ToolResult(f"error: {error}", failed=True)
        except Exception as error:  # noqa: BLE001 - the model is told
            if limit.expired():
                self.out_of_time(call)
                return ToolResult(f"error: not done within {self.seconds} s", failed=True)
            _log.warning("the tool %s failed", call.name, exc_info=True)
            return ToolResult(f"error: {type(error).__name__}: {error}", failed=True)
