"""Moves a session to another permission level: a new sandbox takes the old one's place."""

from typing import Any

from orchestrator.errors import (
    AuditUnavailableError,
    InvalidTransitionError,
    PaddockError,
    SandboxUnavailableError,
)
from orchestrator.keys import Principal
from orchestrator.policy.levels import Level, SessionLimits
from orchestrator.policy.requirements import UnmetError
from orchestrator.sessions import registry
from orchestrator.sessions.lifecycle import Status
from orchestrator.sessions.recorder import Recorder
from orchestrator.sessions.sandbox import Sandbox, Sandboxes
from orchestrator.sessions.session import Session
from orchestrator.sessions.stop_records import StopRecords
from orchestrator.sessions.stopping import Stopper
from orchestrator.store.database import Database

_CHANGING = "the permission level is being changed: try again"


class LevelChange:
    """Changes levels. The caller holds the session's lock."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        stopper: Stopper,
        stops: StopRecords,
        sandboxes: Sandboxes,
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._stopper = stopper
        self._stops = stops
        self._sandboxes = sandboxes

    def needed(self, session: Session, level: Level) -> bool:
        """Whether the session runs at anything but this level as its file is now."""
        same = session.level.name == level.name and session.level.sha256 == level.sha256
        return not same or session.sandbox is None or session.gate is not None

    async def run(
        self,
        session: Session,
        principal: Principal,
        level: Level,
        limits: SessionLimits,
        ignored: dict[str, Any],
    ) -> None:
        """Ends what runs, starts a sandbox at the new level, and removes the old one.

        For a level that is not higher what runs stands still first, and the level is on record
        before anything else goes on, so that nothing that happens meanwhile, a crash included,
        leaves the session higher than it was told to be.
        Raises: UnmetError where this host can't enforce the level: nothing is changed then;
        SandboxUnavailableError, AuditUnavailableError, or UnmetError where the engine can't
        enforce it: nothing runs then, and the session stays closed to new work.
        """
        if session.status is Status.PAUSED:
            raise InvalidTransitionError("the session is paused: resume it first")
        await self._sandboxes.check_level(level)
        args = {"from": session.level.name, "to": level.name, "ignored": ignored}
        session.gate = _CHANGING
        old = session.sandbox
        try:
            # Of one rank may be two versions of a file, and the new one the stricter.
            if level.rank <= session.level.rank:
                await self._lower(session, principal, level, limits, args)
                old, args = session.sandbox, {}
            new = await self._replace(session, old, level, limits)
            if args:
                await self._pin(session, principal, level, args)
            await self._database.write(
                registry.updating(session, sandbox=new.name, container_id=new.container_id)
            )
        except AuditUnavailableError:
            await self._leave_closed(session, "the level change is not on record: set it again")
            raise
        except PaddockError as error:
            detail = f"the level change to {level.name} failed: {error.detail}"
            await self._leave_closed(session, f"{detail}; set the permission level again")
            if isinstance(error, UnmetError):
                raise
            raise SandboxUnavailableError(detail) from error
        except BaseException:
            await self._leave_closed(session, "the level change failed: set the level again")
            raise
        session.level, session.limits, session.gate = level, limits, None

    async def _lower(
        self,
        session: Session,
        principal: Principal,
        level: Level,
        limits: SessionLimits,
        args: dict[str, Any],
    ) -> None:
        """Freezes what runs, records the level, and lets the agent go on, to end what runs.

        Raises: AuditUnavailableError: the record follows; SandboxUnavailableError.
        """
        old = session.sandbox
        thaws = old is not None and await self._stopper.freeze(old)
        self._stops.add(session, lambda: self._pin(session, principal, level, args, stop=True))
        recorded = await self._stops.recorded(session)
        session.level, session.limits = level, limits
        if not recorded:
            raise AuditUnavailableError(
                f"what ran is ended, but that the level is {level.name} is not on record yet: "
                "set it again later"
            )
        if old is not None and not (thaws and await self._stopper.thaw(old)):
            session.sandbox = None
            await self._sandboxes.discard(old)

    async def _pin(
        self,
        session: Session,
        principal: Principal,
        level: Level,
        args: dict[str, Any],
        *,
        stop: bool = False,
    ) -> None:
        await self._recorder.record(
            session,
            "session.settings",
            actor=principal.name,
            decision="allow",
            args=args,
            effect=registry.with_level(session, level),
            stop=stop,
        )

    async def _replace(
        self, session: Session, old: Sandbox | None, level: Level, limits: SessionLimits
    ) -> Sandbox:
        """Ends the old sandbox's commands, takes over its events, and starts the new one.

        The old one goes first: the workspace changes its size in nobody's hands.
        """
        session.sandbox = None
        if old is not None:
            await self._sandboxes.quiesce(old, "level_changed")
            try:
                # A start that finds the session without a sandbox knows that it did not crash.
                await self._database.write(
                    registry.updating(session, sandbox=None, container_id=None)
                )
            finally:
                await self._sandboxes.discard(old)
        session.sandbox = await self._sandboxes.start(session, level, limits)
        return session.sandbox

    async def _leave_closed(self, session: Session, gate: str) -> None:
        session.gate = gate
        sandbox, session.sandbox = session.sandbox, None
        if sandbox is not None:
            await self._sandboxes.discard(sandbox)
