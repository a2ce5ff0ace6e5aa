"""Break-glass accesses of admins to sessions: opened on record, and ended at their time."""

import asyncio
import secrets
import time
from datetime import UTC, datetime, timedelta

from orchestrator.ground.errors import BusyError, ConflictError, NotFoundError
from orchestrator.ground.events import EventDraft, Made, time_text
from orchestrator.record.audit.recorder import BY_GLASS, Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.rules.access.break_glass import BreakGlass, GlassAccess
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.state.session import Session

OPENED, ENDED = "access.break_glass", "access.end"
# Admins who have access to one session at once.
MOST_OPEN = 16


class GlassAccesses:
    """Opens accesses after they are on record, and ends them before that is.

    Whatever depends on an access is told by the keys' own listeners: streams, ports, terminals.
    """

    def __init__(
        self, glass: BreakGlass, keys: KeyRing, recorder: Recorder, stops: StopRecords
    ) -> None:
        self._glass = glass
        self._keys = keys
        self._recorder = recorder
        self._stops = stops
        self._sessions: dict[str, Session] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ignore_keys = keys.on_change(self._recheck)

    async def open(
        self, principal: Principal, session: Session, reason: str, seconds: int
    ) -> GlassAccess:
        """Gives the admin access for that time from now, instead of an access that it has.

        Raises: ConflictError if the admin needs none; BusyError if too many have one; the errors of
        `Session.check_live` and `Recorder.record`.
        """
        if not self._glass.needed(principal, session.owner):
            raise ConflictError(
                "break-glass access is for admins' keys and other keys' sessions, where the "
                "operator has set PADDOCK_BREAK_GLASS: this request needs none"
            )
        session.check_live()
        self._recorder.check_room(session)
        others = [one for one in self._glass.of_session(session.key) if one.key != principal.name]
        if len(others) >= MOST_OPEN:
            raise BusyError(f"{MOST_OPEN} admins have access to this session: end one")
        opened = datetime.now(UTC)
        access = GlassAccess(
            id=f"acc-{secrets.token_hex(8)}",
            session_key=session.key,
            key=principal.name,
            reason=session.secrets.cut(reason),
            opened_at=opened,
            until=opened + timedelta(seconds=seconds),
            deadline=time.monotonic() + seconds,
        )
        draft = EventDraft(
            OPENED,
            actor=principal.name,
            args={"reason": reason, "seconds": seconds},
            made=Made(args={BY_GLASS: access.id}),
            result={"key": principal.name, "until": time_text(access.until)},
        )
        await self._recorder.record(session, draft)
        before = self._glass.get(session.key, principal.name)
        if before is not None:
            self._forget(before)
        self._glass.add(access)
        if session.key not in self._sessions:
            self._sessions[session.key] = session
            session.over.add_done_callback(lambda _: self._end_all(session))
        loop = asyncio.get_running_loop()
        self._timers[access.id] = loop.call_later(seconds, self._end, access, "expired")
        return access

    async def close(self, principal: Principal, session: Session) -> GlassAccess:
        """Ends the caller's access, and what it has opened. Raises: NotFoundError."""
        access = self._glass.get(session.key, principal.name)
        if access is None:
            raise NotFoundError(f"{principal.name} has no break-glass access to {session.id}")
        self._end(access, "closed")
        await self._stops.recorded(session)
        return access

    def _end(self, access: GlassAccess, why: str) -> None:
        """What stops acts first: the record follows."""
        if not self._forget(access):
            return
        session = self._sessions[access.session_key]
        self._keys.announce()
        draft = EventDraft(
            ENDED,
            actor=access.key if why == "closed" else "system",
            args={"key": access.key},
            made=Made(args={BY_GLASS: access.id}),
            result={"reason": why},
            stop=True,
        )
        if session.live:
            self._stops.add(session, lambda: self._recorder.record(session, draft))

    def _forget(self, access: GlassAccess) -> bool:
        timer = self._timers.pop(access.id, None)
        if timer is not None:
            timer.cancel()
        return self._glass.remove(access)

    def _end_all(self, session: Session) -> None:
        """The end of a session is on record as such."""
        for access in self._glass.all:
            if access.session_key == session.key:
                self._forget(access)
        self._sessions.pop(session.key, None)
        self._keys.announce()

    def _recheck(self) -> None:
        """Ends the accesses of those who are no admins any more."""
        for access in self._glass.all:
            known = self._keys.named(access.key)
            if known is None or known.role is not Role.ADMIN:
                self._end(access, "key revoked")

    def shut_down(self) -> None:
        """Ends the timers. The next start knows of no access."""
        self._ignore_keys()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
