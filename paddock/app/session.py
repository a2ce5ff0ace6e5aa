"""One session of an app: its timeline, its run, its children."""

import asyncio
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

from paddock.app.execution import AppResult, Execution
from paddock.app.hooks import told, told_now
from paddock.app.inspection import Inspection, latest
from paddock.app.loop import Loop
from paddock.app.messages import Entry, Input, Reply, TokenUsage, user_messages
from paddock.app.reference import SessionRef, Status
from paddock.app.sending import Send
from paddock.app.settings import AppSettings
from paddock.app.snapshot import AppSnapshot

if TYPE_CHECKING:
    from paddock.app.watching import Watcher

_MOST_QUEUED = 1000


class SessionClosedError(RuntimeError):
    """New work for a session that is closed."""

    def __init__(self) -> None:
        super().__init__("Session is closed")


class AppSession:
    """A conversation with its sandbox. `App.session` and `App.run` make it.

    Attributes:
        send: queues messages, and runs; while a run is going on, that one takes them in, and
            its handle is returned. `send.use(…)` puts functions around it.
    """

    def __init__(
        self,
        id: str,
        settings: AppSettings,
        watcher: "Watcher",
        *,
        ephemeral: bool = False,
        snapshot: AppSnapshot | None = None,
    ) -> None:
        self.id = id
        self.settings = settings
        self.ephemeral = ephemeral
        self.ref = SessionRef(self, settings.level, ephemeral)
        self.tick = snapshot.tick if snapshot else 0
        self.timeline: list[Entry] = list(snapshot.timeline) if snapshot else []
        self.usage = snapshot.usage if snapshot else TokenUsage()
        self._queued: list[Entry] = list(snapshot.queued) if snapshot else []
        self._watcher = watcher
        self._ready = False
        self._aborted = False
        self._execution: Execution | None = None
        self._work: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.send = Send(self._send)

    @property
    def status(self) -> Status:
        """`idle`, `running` or `closed`."""
        if self._closing is not None:
            return "closed"
        return "idle" if self._execution is None else "running"

    @property
    def is_aborted(self) -> bool:
        """Whether the latest run was interrupted."""
        return self._aborted

    @property
    def queued_messages(self) -> tuple[str, ...]:
        """What waits for the next tick that looks."""
        return tuple(each.content for each in self._queued)

    def _send(self, messages: Input) -> Execution:
        self._check_open()
        hook = self.settings.hooks.on_before_send
        if hook is not None:
            texts = [each.content for each in user_messages(messages)]
            answer = hook(self.id, texts)
            if answer is False:
                return self._nothing()
            messages = texts if answer is None else answer
        self.queue(messages)
        return self.render()

    def render(self) -> Execution:
        """Runs with what is there: the timeline and the queue. Without either, nothing runs."""
        self._touch()
        if self._execution is not None:
            return self._execution
        if not self._queued and not self.timeline:
            return self._nothing()
        self._aborted = False
        hook = self.settings.hooks.on_event
        run = Execution(token_hex(8), lambda event: told_now(hook, self.id, event))
        self._execution = run
        self._work = asyncio.create_task(self._run(run))
        self._work.add_done_callback(lambda _: self._ended(run, AppResult("aborted"), None))
        return run

    def queue(self, messages: Input) -> None:
        """Keeps messages for the next run, or for the one that is going on."""
        self._touch()
        new = user_messages(messages)
        if len(self._queued) + len(new) > _MOST_QUEUED:
            raise ValueError(f"a session's queue holds {_MOST_QUEUED} messages")
        self._queued.extend(new)

    def interrupt(self, message: str | None = None) -> None:
        """Ends the run that is going on; a message waits for the next one."""
        if message is not None:
            self.queue(message)
        self._check_open()
        if self._work is not None and self._execution is not None:
            self._aborted = True
            self._work.cancel()

    def clear_abort(self) -> None:
        """Forgets that the latest run was interrupted."""
        self._aborted = False

    def snapshot(self) -> AppSnapshot:
        """The session as it is now; its files are in its sandbox's workspace."""
        return AppSnapshot(
            session_id=self.id,
            tick=self.tick,
            timeline=tuple(self.timeline),
            queued=tuple(self._queued),
            usage=self.usage,
            timestamp=datetime.now(UTC),
        )

    def inspect(self) -> Inspection:
        """What it is doing, and what it has done."""
        text, calls, results = latest(self.timeline)
        return Inspection(
            id=self.id,
            status=self.status,
            current_tick=self.tick + 1,
            tick_count=self.tick,
            queued_messages=self.queued_messages,
            is_aborted=self._aborted,
            last_output=text,
            last_tool_calls=calls,
            last_tool_results=results,
            total_usage=self.usage,
            tools=tuple(self.settings.tools),
        )

    async def close(self) -> None:
        """Ends its run and its sandbox. What the store has stays. A second call changes nothing.

        Raises: what releasing the sandbox raised; the session is closed nevertheless.
        """
        if self._closing is None:
            # A hook or a tool of the run may close the session: the run can't be waited for then.
            own = asyncio.current_task() is self._work
            self._closing = asyncio.create_task(self._close(wait=not own))
        await asyncio.shield(self._closing)

    async def _close(self, *, wait: bool) -> None:
        if self._work is not None:
            if self._execution is not None:
                self._aborted = True
                self._work.cancel()
            if wait:
                await asyncio.wait({self._work})
        try:
            await self.settings.runner.on_destroy(self.ref)
        finally:
            await self._watcher.closed(self)
            await told(self.settings.hooks.on_session_close, self.id)

    async def _run(self, run: Execution) -> None:
        """Does the run; a failure is for those who await its handle."""
        loop, result, error = Loop(self, run), None, None
        try:
            run.begin(self.id)
            if not self._ready:
                await self.settings.runner.on_session_init(self.ref)
                self._ready = True
            result = await loop.run()
        except asyncio.CancelledError:
            result = loop.result("aborted")
        except Exception as caught:  # noqa: BLE001 - raised by the handle
            error = caught
        self._ended(run, result, error)
        await self._after(result, error)

    def _ended(self, run: Execution, result: AppResult | None, error: Exception | None) -> None:
        """Ends the run once: also one that was interrupted before it began."""
        if not run.done:
            self._execution = None
            run.end(result, error)

    async def _after(self, result: AppResult | None, error: Exception | None) -> None:
        hooks = self.settings.hooks
        self._watcher.touched(self)
        if error is not None:
            await told(hooks.on_error, self.id, error)
        if result is not None and result.status != "aborted":
            self._watcher.ran(self)
            await told(hooks.on_complete, self.id, result)
        if result is not None:
            await told(hooks.on_after_send, self.id, result)

    def take_queued(self) -> None:
        """Moves what waits to the timeline."""
        self.timeline.extend(self._queued)
        self._queued.clear()

    def record_reply(self, reply: Reply) -> None:
        """Adds the model's answer to the timeline, and its tokens to the session's."""
        self.usage += reply.usage
        calls = tuple(reply.calls)
        self.timeline.append(Entry(role="assistant", content=reply.text, calls=calls))

    def _touch(self) -> None:
        self._check_open()
        self._watcher.touched(self)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise SessionClosedError

    def _nothing(self) -> Execution:
        run = Execution(token_hex(8))
        run.end(AppResult("completed"))
        return run
