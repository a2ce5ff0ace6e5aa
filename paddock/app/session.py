"""One session of an app: its timeline, its run, its children."""

import asyncio
from secrets import token_hex

from paddock.app.agent import SessionRef, Spawn, Status
from paddock.app.children import Children, Origin
from paddock.app.execution import AppResult, Execution, Send
from paddock.app.hooks import told, told_now
from paddock.app.loop import Loop
from paddock.app.messages import Entry, Input, TokenUsage, user_messages
from paddock.app.settings import AppSettings, of_child
from paddock.app.state import Conversation, Inspection, Unwatched, Watcher, inspected
from paddock.app.store import AppSnapshot


class SessionClosedError(RuntimeError):
    """New work for a session that is closed."""

    def __init__(self) -> None:
        super().__init__("Session is closed")


class AppSession:
    """A conversation with its sandbox. `App.session` and `App.run` make it.

    Attributes:
        send: queues messages, and runs; while a run is going on, that one takes them in, and
            its handle is returned. `send.use(…)` puts functions around it.
        spawn: runs an agent in a child, and returns the run's handle.
        parent, depth: of a child; the depth of other sessions is 0.
    """

    def __init__(
        self,
        id: str,
        settings: AppSettings,
        watcher: Watcher,
        *,
        ephemeral: bool = False,
        snapshot: AppSnapshot | None = None,
        parent: "AppSession | None" = None,
        origin: Origin | None = None,
    ) -> None:
        self.id = id
        self.settings = settings
        self.ephemeral = ephemeral
        self.parent = parent
        self.depth: int = self.parent.depth + 1 if self.parent else 0
        self.ref = _reference(self, origin)
        self._conversation = Conversation(snapshot)
        self._watcher = watcher
        self._origin = origin
        self._children: Children[AppSession] = Children(
            self._conversation, self.depth, self._child, self.touch
        )
        self._preparing = asyncio.Lock()
        self._ready = self._looping = False
        self._work: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.send = Send(self._send)
        self.spawn = Spawn(self._children.start)

    @property
    def status(self) -> Status:
        """`idle`, `running` (also if only a child runs) or `closed`."""
        if self._conversation.is_closed:
            return "closed"
        return "running" if self._conversation.run is not None or self.children else "idle"

    @property
    def children(self) -> "tuple[AppSession, ...]":
        """The children that run."""
        return self._children.live

    @property
    def is_aborted(self) -> bool:
        """Whether the latest run was interrupted."""
        return self._conversation.is_aborted

    @property
    def current_run(self) -> Execution | None:
        """The run that is going on."""
        return self._conversation.run

    @property
    def abort_reason(self) -> str:
        """Why the latest run was interrupted."""
        return self._conversation.abort_reason

    @property
    def queued_messages(self) -> tuple[str, ...]:
        """The messages that wait for the next tick."""
        return self._conversation.queued

    @property
    def timeline(self) -> list[Entry]:
        """What was said."""
        return self._conversation.timeline

    @property
    def tick(self) -> int:
        """The number of ticks that have ended."""
        return self._conversation.tick

    @property
    def usage(self) -> TokenUsage:
        """The tokens of all its runs."""
        return self._conversation.usage

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
        self.touch()
        conversation = self._conversation
        if conversation.run is not None:
            return conversation.run
        if conversation.is_empty:
            return self._nothing()
        conversation.is_aborted = False
        run = self._execution()
        loop = Loop(self.ref, self.settings, conversation, self._children, run)
        conversation.run = run
        self._looping = True
        self._work = asyncio.create_task(self._run(loop))
        self._work.add_done_callback(lambda _: self._ended(run, loop.result("aborted"), None))
        return run

    def _execution(self) -> Execution:
        """A new run's handle; a child's tells the run that spawned it."""
        hook, origin = self.settings.hooks.on_event, self._origin
        return Execution(
            token_hex(8),
            lambda event: told_now(hook, self.id, event),
            top=origin.run.top if origin and origin.run else None,
            forward=origin.forward if origin else None,
        )

    def queue(self, messages: Input) -> None:
        """Keeps messages for the next run, or for the one that is going on."""
        self.touch()
        self._conversation.queue(messages)

    def interrupt(self, message: str | None = None, reason: str = "Interrupted") -> None:
        """Ends the run that is going on, and all children; a message waits for the next run."""
        if message is not None:
            self.queue(message)
        self._check_open()
        self.stop(reason)

    def stop(self, reason: str, of_children: str = "Parent interrupted") -> None:
        """Interrupts the run and the children, whatever the session's state."""
        if self._looping and self._work is not None:
            self._conversation.abort(reason)
            self._work.cancel()
        self._children.stop(of_children)

    def clear_abort(self) -> None:
        """Forgets that the latest run was interrupted."""
        self._conversation.is_aborted = False

    def snapshot(self) -> AppSnapshot:
        """The session as it is now; its files are in its sandbox's workspace."""
        return self._conversation.snapshot(self.id)

    def inspect(self) -> Inspection:
        """What it is doing, and what it has done."""
        return inspected(
            self._conversation,
            id=self.id,
            parent=self.parent.id if self.parent else None,
            children=tuple(child.id for child in self.children),
            depth=self.depth,
            status=self.status,
            tools=tuple(self.settings.tools),
        )

    async def close(self) -> None:
        """Ends its run, its children and its sandbox. What the store has stays.

        A second call changes nothing.

        Raises: what releasing the sandbox raised; the session is closed nevertheless.
        """
        # A hook or a tool of the run may close the session: the run can't be waited for then.
        own = asyncio.current_task() is self._work
        self._conversation.is_closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(wait=not own))
        elif own:
            return
        await asyncio.shield(self._closing)

    async def _close(self, *, wait: bool) -> None:
        self.stop("Session closed", of_children="Parent closed")
        if wait and self._work is not None:
            await asyncio.wait({self._work})
        await self._children.ended()
        try:
            await self._release()
        finally:
            await self._watcher.closed(self.id)
            await told(self.settings.hooks.on_session_close, self.id)

    async def prepare(self) -> None:
        """Gives the session its sandbox, once. A child's sandbox may need its parent's."""
        async with self._preparing:
            if self._ready:
                return
            if self.parent is not None:
                await self.parent.prepare()
            await self.settings.runner.on_session_init(self.ref)
            self._ready = True

    async def _release(self) -> None:
        """Ends its sandbox, once."""
        if self._releasing is None:
            self._releasing = asyncio.create_task(self._destroy())
        await asyncio.shield(self._releasing)

    async def _destroy(self) -> None:
        await self.settings.runner.on_destroy(self.ref)

    async def _run(self, loop: Loop) -> None:
        """Does the run. A failure is for those who await its handle."""
        result, error = None, None
        try:
            loop.execution.begin(self.id)
            await self.prepare()
            result = await loop.run()
        except asyncio.CancelledError:
            result = loop.result("aborted")
        except Exception as caught:  # noqa: BLE001 - raised by the handle
            error = caught
        # From here on, an interrupt concerns only the children.
        self._looping = False
        if self._origin is not None:
            try:
                await self._end_child(aborted=result is not None and result.status == "aborted")
            except Exception as caught:  # noqa: BLE001 - raised by the handle
                result, error = None, error or caught
        await self._children.ended(loop.execution)
        self._ended(loop.execution, result, error)
        await self._after(result, error)

    async def _end_child(self, *, aborted: bool) -> None:
        """Closes a child with its run. Interrupted children end at the same time."""
        if not aborted:
            await self._children.ended()
        self._conversation.is_closed = True
        await self._release()

    def _ended(self, run: Execution, result: AppResult | None, error: Exception | None) -> None:
        """Ends the run once, also if it was interrupted before it began."""
        if run.done:
            return
        self._conversation.run = None
        run.end(result, error)
        if self._origin is not None:
            self._conversation.is_closed = True
            self._origin.ended(self.id, self.usage, result, error)

    async def _after(self, result: AppResult | None, error: Exception | None) -> None:
        hooks = self.settings.hooks
        self._watcher.touched(self.id)
        if error is not None:
            await told(hooks.on_error, self.id, error)
        if result is not None and result.status != "aborted":
            self._watcher.ran(self.id)
            await told(hooks.on_complete, self.id, result)
        if result is not None:
            await told(hooks.on_after_send, self.id, result)

    def _child(self, origin: Origin) -> "AppSession":
        """A child that has not begun. Raises: ValueError."""
        return AppSession(
            f"app-{token_hex(8)}",
            of_child(self.settings, origin.request),
            Unwatched(),
            ephemeral=True,
            parent=self,
            origin=origin,
        )

    def touch(self) -> None:
        """Notes that the session is used. Raises: SessionClosedError."""
        self._check_open()
        self._watcher.touched(self.id)

    def _check_open(self) -> None:
        if self._conversation.is_closed:
            raise SessionClosedError

    def _nothing(self) -> Execution:
        run = Execution(token_hex(8))
        run.end(AppResult("completed"))
        return run


def _reference(session: AppSession, origin: Origin | None) -> SessionRef:
    level, ephemeral = session.settings.level, session.ephemeral
    if origin is None:
        return SessionRef(session, level, ephemeral)
    asked = origin.request
    above = session.parent.ref if session.parent else None
    return SessionRef(session, level, ephemeral, above, asked.label, asked.workspace)
