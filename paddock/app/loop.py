"""A run's loop: the timeline to the model, its calls to the tools, until it calls none."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paddock.app.agent import ModelInput, SessionRef, ToolResult
from paddock.app.calls import Caller
from paddock.app.children import Children
from paddock.app.execution import AppEvent, AppResult, Ended, Execution, Kind
from paddock.app.hooks import asked, told
from paddock.app.messages import Entry, Reply, TokenUsage, ToolCall, trimmed
from paddock.app.settings import AppSettings
from paddock.app.state import Conversation

_MOST_CALLS = 32


@dataclass(slots=True)
class Loop:
    """The ticks of one run."""

    session: SessionRef
    settings: AppSettings
    conversation: Conversation
    children: Children[Any]
    execution: Execution
    ticks: int = 0
    text: str = ""
    usage: TokenUsage = field(default_factory=TokenUsage)

    async def run(self) -> AppResult:
        """Runs until the model calls no tool, no child runs, and nobody has sent more."""
        most = self.settings.max_ticks
        while self.ticks < most:
            self.conversation.take_queued()
            called = await self._tick()
            if self.conversation.is_aborted:  # a tool has hidden its cancellation
                return self.result("aborted")
            if called or self.conversation.queued:
                continue
            await self.children.ended(self.execution)
            if not self.conversation.queued:
                return self.result("completed")
        return self.result("max-ticks")

    def result(self, status: Ended) -> AppResult:
        """The result so far."""
        reason = self.conversation.abort_reason if status == "aborted" else None
        return AppResult(status, self.text, self.ticks, self.usage, reason)

    async def _tick(self) -> bool:
        """One call of the model and of its tools; returns whether it called any."""
        conversation, hooks = self.conversation, self.settings.hooks
        number = conversation.tick + 1
        await told(hooks.on_tick_start, number, self.execution.id)
        self._tell("tick_start", tick=number)
        reply = await self._ask()
        self.ticks += 1
        self.text = reply.text
        self.usage += reply.usage
        conversation.record_reply(reply)
        if reply.text:
            self._tell("text", text=reply.text)
        try:
            await self._call_all(reply.calls)
        finally:
            conversation.tick += 1
        kept = self.settings.max_timeline_entries, self.settings.max_timeline_bytes
        conversation.timeline[:] = trimmed(conversation.timeline, *kept)
        self._tell("tick_end", tick=number)
        await told(hooks.on_tick_end, number, reply.usage)
        return bool(reply.calls)

    async def _ask(self) -> Reply:
        settings = self.settings
        tools = tuple(settings.tools.values())
        given = ModelInput(settings.system, tuple(self.conversation.timeline), tools)
        given = await settings.runner.prepare_model_input(self.session, given)
        async with asyncio.timeout(settings.model_seconds):
            reply = await settings.model(given)
        return Reply(reply) if isinstance(reply, str) else reply

    async def _call_all(self, calls: Sequence[ToolCall]) -> None:
        """One after the other. An interrupted call is answered too: models insist on that."""
        settings = self.settings
        caller = Caller(
            runner=settings.runner,
            session=self.session,
            tools=settings.tools,
            confirm=self._confirm,
            spawn=self.children.start,
            out_of_time=self.children.stop_those_of,
            seconds=settings.tool_seconds,
        )
        done = 0
        try:
            for call in calls:
                self._tell("tool_call", id=call.id, name=call.name, arguments=call.arguments)
                too_many = ToolResult(f"not done: a tick has at most {_MOST_CALLS} calls", True)
                result = await caller.do(call) if done < _MOST_CALLS else too_many
                self._answer(call, result)
                done += 1
        finally:
            for call in calls[done:]:
                self._answer(call, ToolResult("interrupted: it may have been done", failed=True))

    def _answer(self, call: ToolCall, result: ToolResult) -> None:
        entry = Entry(role="tool", content=result.text, call_id=call.id, failed=result.failed)
        self.conversation.timeline.append(entry)
        self._tell("tool_result", id=call.id, name=call.name, success=not result.failed)

    async def _confirm(self, call: ToolCall) -> bool:
        """Asks the hook; without a hook, the answer is no."""
        hook = self.settings.hooks.on_tool_confirmation
        return await asked(hook, self.session.id, call) is True

    def _tell(self, kind: Kind, **data: Any) -> None:
        self.execution.tell(AppEvent(kind, data))
