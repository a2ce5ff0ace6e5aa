"""Suspends idle sessions: they keep their workspace, and get a sandbox again at their next use."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from orchestrator.ground.errors import (
    AuditUnavailableError,
    BusyError,
    ConflictError,
    InvalidTransitionError,
    PaddockError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.workspace import slots
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.record.audit.suspension_records import record_kept, record_suspended
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.sandboxes.session_sandboxes import Sandboxes
from orchestrator.sessions.deadlines import Deadlines
from orchestrator.sessions.idleness import (
    can_be_suspended,
    is_untouched,
    least_recently_used,
    waiting,
    why_busy,
)
from orchestrator.sessions.in_cluster.session_growth import SessionGrowth
from orchestrator.sessions.sandbox_room import SandboxRoom
from orchestrator.sessions.shares import Shares
from orchestrator.state import session_rows
from orchestrator.state.lifecycle import Suspension
from orchestrator.state.moving import move_rows
from orchestrator.state.registry import Registry
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.work.commands.execution import Executions
from paddock.contract.words import Status

log = logging.getLogger(__name__)

# How long what waits for work may take to end: TERM, then KILL.
_END_SECONDS = 20.0


class Suspensions:
    """Suspends and restores sessions. A session that is in use is never suspended."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        stops: StopRecords,
        sandboxes: Sandboxes,
        sessions: Registry,
        room: SandboxRoom,
        shares: Shares,
        deadlines: Deadlines,
        executions: Executions,
        usage: SessionGrowth,
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._stops = stops
        self._sandboxes = sandboxes
        self._registry = sessions
        self._room = room
        self._shares = shares
        self._deadlines = deadlines
        self._executions = executions
        self._usage = usage
        self._leaving = TaskScope("the suspension of a session")
        self._returning = TaskScope("the restoration of a session")
        # By session key: all that use a session wait for the same restoration.
        self._restorations: dict[str, asyncio.Task[None]] = {}

    async def drain(self) -> None:
        """Waits for what is being suspended or restored."""
        await self._returning.drain()
        await self._leaving.drain()

    # Suspending.

    async def suspend_one(self) -> tuple[Session, ...] | None:
        """Suspends the least recently used idle session, and returns it.

        Returns an empty tuple if one was suspended for somebody else meanwhile, and None if none
        can be suspended. Raises: AuditUnavailableError, and nothing is suspended.
        """
        session = least_recently_used(self._registry.sandboxed)
        if session is not None:
            return (session,) if await self.suspend(session, "room") else ()
        if self._leaving.idle:
            return None
        await self._leaving.one_ended()
        return ()

    async def suspend(self, session: Session, reason: str) -> bool:
        """Whether the session, which was idle, is suspended now. `reason`: room or idle.

        Raises: AuditUnavailableError, and the session keeps its sandbox.
        """
        if not can_be_suspended(session):
            return False
        # Whoever wants to use it from now on waits, and restores it.
        session.suspension = Suspension.BEGINNING
        return await self._leaving.shield(self._suspend(session, reason))

    async def _suspend(self, session: Session, reason: str) -> bool:
        async with session.lock:
            if not await self._end_waiting(session):
                return False
            return await self._give_up(session, reason)

    async def _end_waiting(self, session: Session) -> bool:
        """Ends what only waits for work, and returns whether its end is on record.

        If it is not, the session keeps its sandbox.
        """
        ending, ended = waiting(session), False
        try:
            for command in ending:
                await self._executions.end(session, command, "suspended")
            if ending:
                await asyncio.wait([command.done for command in ending], timeout=_END_SECONDS)
            ended = all(command.settled for command in ending)
        finally:
            if not ended:
                session.suspension = None
        return ended

    async def _give_up(self, session: Session, reason: str) -> bool:
        """Records and removes the session's sandbox; its lock is held."""
        sandbox = session.sandbox
        if sandbox is None or not is_untouched(session):
            session.suspension = None
            return False
        sandbox.shut_off()
        try:
            await sandbox.link.settled()
            await record_suspended(self._recorder, session, {"reason": reason})
            FaultPoint.SUSPEND_RECORDED.reached()
        except BaseException:
            session.suspension = None
            sandbox.reopen()
            self._stops.add(session, partial(record_kept, self._recorder, session))
            raise
        session.sandbox = None
        try:
            await self._release(sandbox)
            FaultPoint.SUSPEND_REMOVED.reached()
        finally:
            session.suspension = Suspension.SUSPENDED
            self._deadlines.watch(session)
        log.info("session %s is suspended: %s", session.id, reason)
        return True

    @asynccontextmanager
    async def without_sandbox(
        self, principal: Principal, session: Session, reason: str, own_uses: int = 0
    ) -> AsyncGenerator[None]:
        """Holds an active session that has no sandbox meanwhile, and gets one at its next use.

        A session whose secrets only its sandbox and this process have gets one at once. Otherwise
        as `emptied`.
        """
        async with self.emptied(session, reason, own_uses):
            yield
        if session.suspended and session.secrets.message() is not None:
            await self._restored(principal, session)

    @asynccontextmanager
    async def emptied(
        self,
        session: Session,
        reason: str,
        own_uses: int = 0,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncGenerator[None]:
        """Holds an active session that has no sandbox meanwhile.

        `own_uses`: how often the caller itself is using the session. `first` is awaited once
        nothing runs in it, before it loses its sandbox; then the programs of code contexts end,
        too, which only wait. Raises: BusyError if something runs in it; ConflictError,
        InvalidTransitionError if it is paused; AuditUnavailableError, and the session keeps its
        sandbox.
        """
        async with session.lock:
            session.check_not_ending()
            session.check_not_fenced()
            if session.status is Status.PAUSED:
                raise InvalidTransitionError("the session is paused: resume it first")
            if not session.suspended:
                busy = why_busy(session, own_uses, waiting_ends=first is not None)
                if busy is not None:
                    raise BusyError(busy)
                session.suspension = Suspension.BEGINNING
            if first is not None:
                await self._ready(session, first)
            if not session.suspended and not await self._give_up(session, reason):
                raise ConflictError(session.gate or "the session is being changed: try again")
            yield

    async def _ready(self, session: Session, first: Callable[[], Awaitable[None]]) -> None:
        """Ends what only waits, and awaits `first`; the session keeps its sandbox if that fails."""
        try:
            if session.suspended or await self._end_waiting(session):
                return await first()
            raise BusyError("programs of the session's code contexts do not end: try again")
        except BaseException:
            if not session.suspended:
                session.suspension = None
            raise

    async def _release(self, sandbox: Sandbox) -> None:
        """Removes the sandbox; the next start finds what can't be removed."""
        try:
            await self._sandboxes.quiesce(sandbox, "suspended")
            await self._sandboxes.discard(sandbox)
        except PaddockError as error:
            log.error("sandbox %s is not removed completely: %s", sandbox.name, error.detail)

    # Restoring.

    @asynccontextmanager
    async def using(self, principal: Principal, session: Session) -> AsyncGenerator[None]:
        """Keeps an active session from being suspended; one that is suspended is restored first.

        Raises: CapacityExhaustedError if there is no room, RateLimitedError,
        AuditUnavailableError, and the errors of `Sandboxes.start`; it stays suspended then.
        """
        with session.using():
            if session.suspension is not None and session.status is Status.ACTIVE:
                await self._restored(principal, session)
            yield

    async def _restored(self, principal: Principal, session: Session) -> None:
        """Waits for the session's restoration, which it begins if nobody else has."""
        running = self._restorations.get(session.key)
        if running is None:
            running = self._returning.begin(self._restore(principal, session))
            self._restorations[session.key] = running
            running.add_done_callback(lambda _: self._restorations.pop(session.key))
        await asyncio.shield(running)

    async def _restore(self, principal: Principal, session: Session) -> None:
        with await self._shares.slot(principal):
            async with session.lock:
                if not session.suspended or session.status is not Status.ACTIVE:
                    return
                session.check_not_fenced()
                session.check_settled()
                self._recorder.check_room(session)
                if not await self._stops.recorded(session):
                    raise AuditUnavailableError("an earlier stop is not on record yet: try again")
                looking = self._sandboxes.look_up(session.terms.image)
                self._room.admit(await self._room.make())
                session.suspension = Suspension.RESTORING
                try:
                    await self._start(principal, session, looking)
                except BaseException as error:
                    session.suspension = Suspension.SUSPENDED
                    self._record_failure(session, error)
                    raise
                session.suspension = None
                self._deadlines.watch(session)

    async def _start(
        self, principal: Principal, session: Session, looking: asyncio.Task[str]
    ) -> None:
        """Records the restoration, and starts a sandbox; if that fails, nothing of it is left."""
        await self._recorder.record(
            session,
            EventDraft("session.restored", actor=principal.name, decision="allow"),
            effect=session_rows.updating(session, suspension=Suspension.RESTORING),
        )
        FaultPoint.RESTORE_RECORDED.reached()
        sandbox = await self._sandboxes.start(session, session.level, session.limits, looking)
        FaultPoint.RESTORE_STARTED.reached()
        session.sandbox = sandbox
        row, size = session_rows.restored(session), session.limits.workspace_bytes
        settling = self._usage.settling(session)

        def write(connection: sqlite3.Connection) -> None:
            row(connection)
            move_rows.forgetting_kept(connection, session.key)
            if session.family.shares:
                return
            # It may have changed meanwhile.
            if slots.set_size(connection, session.workspace.id, size) and settling is not None:
                settling(connection)

        try:
            await self._database.write(write)
            FaultPoint.RESTORE_STORED.reached()
        except BaseException:
            session.sandbox = None
            await self._sandboxes.discard(sandbox)
            raise

    def _record_failure(self, session: Session, error: BaseException) -> None:
        detail = error.detail if isinstance(error, PaddockError) else "interrupted"
        failure = f"the session could not be restored: {detail}"
        self._stops.add(session, lambda: record_suspended(self._recorder, session, {}, failure))

    async def recover(self, session: Session, suspension: Suspension) -> None:
        """Takes over a session that an earlier control plane suspended."""
        session.suspension = Suspension.SUSPENDED
        session.secrets.learn_none()
        if suspension is Suspension.RESTORING:
            error = "the control plane ended while it restored the session"
            await record_suspended(self._recorder, session, {}, error)
