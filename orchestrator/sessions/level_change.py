"""Moves a session to another permission level: a new sandbox replaces the old one."""

import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

from orchestrator.ground.errors import (
    AuditUnavailableError,
    CapacityExhaustedError,
    ClusterUnavailableError,
    InvalidTransitionError,
    PaddockError,
    RateLimitedError,
    SandboxUnavailableError,
)
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.host.node.requirements import UnmetError
from orchestrator.host.workspace.holders import WorkspaceInUseError
from orchestrator.record.audit.gaps import Gaps
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.policy.levels import Level, SessionLimits
from orchestrator.sandbox.sandboxes.session_sandboxes import Sandboxes
from orchestrator.sandbox.sandboxes.stopper import Stopper
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.sessions.level_records import LevelRecords
from orchestrator.sessions.sandbox_exchange import SandboxExchange
from orchestrator.state.session import Session
from orchestrator.work.commands.output_moves import LOWERING_SECONDS, SECONDS, Move, OutputMoves
from paddock.contract.words import Status

log = logging.getLogger(__name__)

# Errors that the caller can act on.
_SAYS_WHY = (UnmetError, RateLimitedError, CapacityExhaustedError, ClusterUnavailableError)
_CHANGING = "the permission level is being changed: try again"


class _ReturnedError(Exception):
    """The level was not raised, and the session continues at the present one."""

    def __init__(self, why: PaddockError) -> None:
        super().__init__()
        self.why = why


class LevelChange:
    """Changes levels. The caller holds the session's lock."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        stopper: Stopper,
        stops: StopRecords,
        gaps: Gaps,
        sandboxes: Sandboxes,
        places: SessionPlaces,
    ) -> None:
        self._stopper = stopper
        self._stops = stops
        self._sandboxes = sandboxes
        self._records = LevelRecords(recorder, places)
        self._exchange = SandboxExchange(database, gaps, sandboxes)
        self._moves = OutputMoves()

    def needed(self, session: Session, level: Level) -> bool:
        """Whether the session's level differs from this level as its file is now.

        Or its sandbox is of an earlier version, in whose place it gets a new one.
        """
        same = session.level.name == level.name and session.level.sha256 == level.sha256
        closed = session.gate is not None or (session.sandbox is None and not session.suspended)
        earlier = session.sandbox is not None and session.sandbox.link.earlier
        return not same or closed or earlier

    def lowers(self, session: Session, level: Level) -> bool:
        """Whether a change to that level may make the session stricter.

        Two versions of a file may have the same rank, and the new one may be stricter.
        """
        return level.rank <= session.level.rank and self.needed(session, level)

    @asynccontextmanager
    async def held(self, session: Session, level: Level | None) -> AsyncGenerator[None]:
        """Holds the session's lock. If the change lowers its level, what runs is frozen first.

        If nothing was changed, what runs continues before the lock is released: a pause that waits
        for the lock would otherwise be thawed.
        """
        old = session.sandbox
        if level is None or old is None or not self._stands_still(session, level):
            async with session.lock:
                yield
            return
        await self._stopper.freeze(old)
        async with session.lock:
            try:
                yield
            finally:
                goes_on = session.status is Status.ACTIVE and not session.fenced
                if session.sandbox is old and goes_on:
                    await self._stopper.let_go(old)

    def _stands_still(self, session: Session, level: Level) -> bool:
        return session.status is Status.ACTIVE and self.lowers(session, level)

    async def run(
        self,
        session: Session,
        principal: Principal,
        level: Level,
        limits: SessionLimits,
        admitted: AbstractAsyncContextManager[None],
    ) -> None:
        """Ends what runs, starts a sandbox at the new level, and removes the old one.

        For a level that is not higher, what runs is frozen first, and the level is recorded before
        anything continues. Nothing that happens meanwhile, including a crash, therefore leaves the
        session at a higher level than ordered. `admitted` is held while the session has both
        limits; if it raises, a higher level is refused and nothing changes. A lower one still ends
        what runs, and the session stays closed to new work. Raises: UnmetError if this host can't
        enforce the level, in which case nothing changes; SandboxUnavailableError,
        AuditUnavailableError, or UnmetError if the engine can't enforce it. Then a session whose
        level was to be raised continues at its present one, if a sandbox starts for that;
        otherwise nothing runs, and the session stays closed to new work.
        """
        if session.status is Status.PAUSED:
            raise InvalidTransitionError("the session is paused: resume it first")
        await self._sandboxes.check_level(session, level)
        args = {"from": session.level.name, "to": level.name}
        if session.suspended:
            await self._pin_suspended(session, principal, level, limits, args, admitted)
            return
        if self.lowers(session, level):
            async with self._closing(session, level), self._moves.begin() as move:
                await self._lower(session, principal, level, args)
                await self._exchange.end(session, move, LOWERING_SECONDS)
                async with admitted:
                    await self._start_lowered(session, principal, level, limits, move)
            return
        if not await self._stops.recorded(session):
            raise AuditUnavailableError("an earlier stop is not on record yet: try again")
        async with admitted, self._closing(session, level), self._moves.begin() as move:
            await self._exchange.end(session, move, SECONDS)
            try:
                await self._exchange.start(
                    session,
                    level,
                    limits,
                    move,
                    lambda: self._records.record(session, principal, level, args),
                )
            except PaddockError as error:
                await self._return(session, principal, level, move, error)
                raise

    @asynccontextmanager
    async def _closing(self, session: Session, level: Level) -> AsyncGenerator[None]:
        """Closes the session to new work meanwhile, and afterwards if the change fails."""
        session.gate = _CHANGING
        try:
            yield
        except _ReturnedError as returned:
            session.gate = None
            if isinstance(returned.why, _SAYS_WHY):
                raise returned.why from None
            raise SandboxUnavailableError(
                f"the level change to {level.name} failed: {returned.why.detail}; the session "
                f"continues at {session.level.name}"
            ) from returned.why
        except AuditUnavailableError:
            await self._leave_closed(session, "the level change is not on record: set it again")
            raise
        except PaddockError as error:
            detail = f"the level change to {level.name} failed: {error.detail}"
            await self._leave_closed(session, f"{detail}; set the permission level again")
            if isinstance(error, _SAYS_WHY):
                raise
            raise SandboxUnavailableError(detail) from error
        except BaseException:
            await self._leave_closed(session, "the level change failed: set the level again")
            raise
        session.gate = None

    async def _start_lowered(
        self,
        session: Session,
        principal: Principal,
        level: Level,
        limits: SessionLimits,
        move: Move,
    ) -> None:
        """Starts the new sandbox; a workspace that can't shrink now keeps its size, on record."""
        try:
            await self._exchange.start(session, level, limits, move)
        except WorkspaceInUseError as error:
            size = session.limits.workspace_bytes
            await self._exchange.start(session, level, replace(limits, workspace_bytes=size), move)
            await self._records.record_failure(session, principal, {"workspace_bytes": size}, error)

    async def _return(
        self, session: Session, principal: Principal, level: Level, move: Move, why: PaddockError
    ) -> None:
        """Starts a sandbox at the present level again, after another could not be started.

        Raises: _ReturnedError if it has started. Returns if it can't start either.
        """
        args = {"from": session.level.name, "to": level.name}
        if session.sandbox is None and not isinstance(why, AuditUnavailableError):
            try:
                await self._exchange.start(session, session.level, session.limits, move)
            except PaddockError as error:
                log.warning("a session can't return to %s: %s", session.level.name, error.detail)
            else:
                await self._records.record_failure(session, principal, args, why)
                raise _ReturnedError(why)
        await self._records.record_failure(session, principal, args, why)

    async def _lower(
        self,
        session: Session,
        principal: Principal,
        level: Level,
        args: dict[str, Any],
    ) -> None:
        """Freezes what runs, records the level, and thaws the agent, which ends what runs.

        Raises: AuditUnavailableError, in which case the record follows; SandboxUnavailableError.
        """
        old = session.sandbox
        thaws = old is not None and await self._stopper.freeze(old)
        FaultPoint.LEVEL_FROZEN.reached()
        self._stops.add(
            session, lambda: self._records.record(session, principal, level, args, stop=True)
        )
        recorded = await self._stops.recorded(session)
        FaultPoint.LEVEL_RECORDED.reached()
        session.set_level(level)
        if not recorded:
            raise AuditUnavailableError(
                f"what ran was ended, but the level {level.name} is not recorded yet: "
                "set it again later"
            )
        if old is not None and not (thaws and await self._stopper.thaw(old)):
            await self._exchange.discard(session, old)

    async def _pin_suspended(
        self,
        session: Session,
        principal: Principal,
        level: Level,
        limits: SessionLimits,
        args: dict[str, Any],
        admitted: AbstractAsyncContextManager[None],
    ) -> None:
        """Records the level of a suspended session, at which its next use restores it.

        Raises: AuditUnavailableError; a lower level is recorded later then.
        """
        lowers = self.lowers(session, level)
        if lowers:
            self._stops.add(
                session, lambda: self._records.record(session, principal, level, args, stop=True)
            )
            session.set_level(level)
        if not await self._stops.recorded(session):
            raise AuditUnavailableError("this or an earlier stop is not on record yet: try again")
        async with admitted:
            if not lowers:
                await self._records.record(session, principal, level, args)
                session.set_level(level)
            session.limits = limits

    async def _leave_closed(self, session: Session, gate: str) -> None:
        session.gate = gate
        await self._exchange.discard(session, session.sandbox)
