"""A run's loop: the timeline to the model, its calls to the tools, until it calls none."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paddock.app.calls import Caller
from paddock.app.events import AppEvent, Kind
from paddock.app.execution import AppResult, Ended, Execution
from paddock.app.hooks import asked, told
from paddock.app.messages import Entry, Reply, TokenUsage, ToolCall, trimmed
from paddock.app.runner import ModelInput, ToolResult

if TYPE_CHECKING:
    from paddock.app.session import AppSession

_MOST_CALLS = 32


@dataclass(slots=True)
class Loop:
    """The ticks of one run."""

    session: "AppSession"
    execution: Execution
    ticks: int = 0
    text: str = ""
    usage: TokenUsage = field(default_factory=TokenUsage)

    async def run(self) -> AppResult:
        """Runs until the model calls no tool, no child runs, and nobody has sent more."""
        most = self.session.settings.max_ticks
        while self.ticks < most:
            self.session.take_queued()
            called = await self._tick()
            if self.session.is_aborted:  # a tool has hidden its cancellation
                return self.result("aborted")
            if called or self.session.queued_messages:
                continue
            await self.session.spawned.ended(self.execution)
            if not self.session.queued_messages:
                return self.result("completed")
        return self.result("max-ticks")

    def result(self, status: Ended) -> AppResult:
        """The result so far."""
        reason = self.session.abort_reason if status == "aborted" else None
        return AppResult(status, self.text, self.ticks, self.usage, reason)

    async def _tick(self) -> bool:
        """One call of the model and of its tools; returns whether it called any."""
        session, hooks = self.session, self.session.settings.hooks
        number = session.tick + 1
        await told(hooks.on_tick_start, number, self.execution.id)
        self._tell("tick_start", tick=number)
        reply = await self._ask()
        self.ticks += 1
        self.text = reply.text
        self.usage += reply.usage
        session.record_reply(reply)
        if reply.text:
            self._tell("text", text=reply.text)
        try:
            await self._call_all(reply.calls)
        finally:
            session.tick += 1
        kept = session.settings.max_timeline_entries, session.settings.max_timeline_bytes
        session.timeline[:] = trimmed(session.timeline, *kept)
        self._tell("tick_end", tick=number)
        await told(hooks.on_tick_end, number, reply.usage)
        return bool(reply.calls)

    async def _ask(self) -> Reply:
        session, settings = self.session, self.session.settings
        tools = tuple(settings.tools.values())
        given = ModelInput(settings.system, tuple(session.timeline), tools)
        given = await settings.runner.prepare_model_input(session.ref, given)
        async with asyncio.timeout(settings.model_seconds):
            reply = await settings.model(given)
        return Reply(reply) if isinstance(reply, str) else reply

    async def _call_all(self, calls: Sequence[ToolCall]) -> None:
        """One after the other. An interrupted call is answered too: models insist on that."""
        session, settings = self.session, self.session.settings
        caller = Caller(
            runner=settings.runner,
            session=session.ref,
            tools=settings.tools,
            confirm=self._confirm,
            spawn=session.spawned.start,
            out_of_time=session.spawned.stop_those_of,
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
        self.session.timeline.append(entry)
        self._tell("tool_result", id=call.id, name=call.name, success=not result.failed)

    async def _confirm(self, call: ToolCall) -> bool:
        """Without a hook that says yes: no."""
        hook = self.session.settings.hooks.on_tool_confirmation
        return await asked(hook, self.session.id, call) is True

    def _tell(self, kind: Kind, **data: Any) -> None:
        self.execution.tell(AppEvent(kind, data))
