"""Freezes and thaws sessions."""

from orchestrator.ground.errors import AuditUnavailableError, SandboxUnavailableError
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.effect import together
from orchestrator.host.engine.base import Engine
from orchestrator.host.link.vouching import Vouching
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.sandboxes.stopper import Stopper
from orchestrator.sessions.deadlines import Deadlines
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.state import session_rows
from orchestrator.state.lifecycle import check_transition
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.work.code.cells import Cells
from paddock.contract.words import Status


class Pauses:
    """Carries pauses out, then records them; records resumptions first."""

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        stopper: Stopper,
        stops: StopRecords,
        places: SessionPlaces,
        deadlines: Deadlines,
        cells: Cells,
        vouching: Vouching,
        hello_timeout: float,
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._stopper = stopper
        self._stops = stops
        self._places = places
        self._deadlines = deadlines
        self._cells = cells
        self._vouching = vouching
        self._hello_timeout = hello_timeout

    async def pause(self, principal: Principal, session: Session) -> None:
        """Freezes the session's sandbox without waiting for other changes of the session.

        In a suspended session nothing runs; it is restored once it is resumed and used.

        Raises: InvalidTransitionError; SandboxUnavailableError if it could only be killed.
        """
        if session.sandbox is not None and (
            session.lock.locked() or session.status is Status.ACTIVE
        ):
            await self._stopper.hold(session.sandbox)
        async with session.lock:
            check_transition(session.status, Status.PAUSED)
            if not session.suspended:
                # The lock's holder may have thawed or replaced it.
                await self._stopper.hold(_sandbox(session))
            FaultPoint.PAUSE_FROZEN.reached()
            session.status = Status.PAUSED
            self._deadlines.watch(session)
            at = now()
            self._stops.add(session, lambda: self._record(principal, session, Status.PAUSED, at))
            await self._stops.recorded(session)
            FaultPoint.PAUSE_RECORDED.reached()

    async def resume(self, principal: Principal, session: Session) -> None:
        """Thaws it; its agent answers when this returns.

        Raises: RateLimitedError, CapacityExhaustedError, AuditUnavailableError, in which case it
        stays frozen; SandboxUnavailableError.
        """
        async with session.lock:
            check_transition(session.status, Status.ACTIVE)
            session.check_not_fenced()
            if not session.suspended:
                _check_goes_on(_sandbox(session))
            self._recorder.check_room(session)
            if not await self._stops.recorded(session):
                raise AuditUnavailableError("the session's pause is not on record yet: try again")
            if session.suspended:  # its next use restores it
                await self._record(principal, session, Status.ACTIVE)
                session.status = Status.ACTIVE
                self._deadlines.watch(session)
                return
            sandbox = _sandbox(session)
            await self._engine.resume(sandbox.container_id)
            FaultPoint.RESUME_THAWED.reached()
            try:
                _check_goes_on(sandbox)
                await self._record(principal, session, Status.ACTIVE)
            except BaseException:
                await self._stopper.hold(sandbox)
                raise
            FaultPoint.RESUME_RECORDED.reached()
            session.status = Status.ACTIVE
            sandbox.reopen()
            self._deadlines.watch(session)
            await sandbox.link.wait_connected(self._hello_timeout)
            if session.recovers:
                await self._vouching.vouch(sandbox.link)
            await self._cells.end_left(session)

    async def _record(
        self, principal: Principal, session: Session, status: Status, at: str | None = None
    ) -> None:
        await self._recorder.record(
            session,
            EventDraft(
                "session.pause" if status is Status.PAUSED else "session.resume",
                actor=principal.name,
                time=at,
                stop=status is Status.PAUSED,
            ),
            effect=together(
                session_rows.updating(session, status=status),
                self._places.changed(session, status=status),
            ),
        )


def _check_goes_on(sandbox: Sandbox) -> None:
    """Raises SandboxUnavailableError if it is frozen for the session's end."""
    if sandbox.freezing is not None:
        raise SandboxUnavailableError("the session is ending")


def _sandbox(session: Session) -> Sandbox:
    """Raises SandboxUnavailableError if the session has no sandbox."""
    if session.sandbox is None:
        raise SandboxUnavailableError(session.gate or "the session has no sandbox")
    return session.sandbox
