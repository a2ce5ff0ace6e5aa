"""Opens and closes ports of sessions, on record."""

import asyncio
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from orchestrator.ground.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
)
from orchestrator.ground.events import EventDraft, now, time_text
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.sandbox.packs.decisions import TOOL
from orchestrator.sandbox.ports import port_rows
from orchestrator.sandbox.ports.limits import PortLimits
from orchestrator.sandbox.ports.links import expiry, link_token
from orchestrator.sandbox.ports.tunnels import PortsPart, Tunnels
from orchestrator.state.open_port import OpenPort
from orchestrator.state.session import Session

_SYSTEM = "system"
_MANAGERS = (Role.ADMIN, Role.OPERATOR)


class Ports:
    """The open ports of all sessions.

    Opening is recorded first; closing ends the connections first.
    """

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        stops: StopRecords,
        keys: KeyRing,
        glass: BreakGlass,
        secret: str,
        way: PortsPart,
        limits: PortLimits,
    ) -> None:
        """`secret` signs links."""
        self._database = database
        self._recorder = recorder
        self._stops = stops
        self._keys = keys
        self._glass = glass
        self._secret = secret
        self._way = way
        self._limits = limits
        # Sessions with open ports, by key.
        self._sessions: dict[str, Session] = {}
        self._tasks = TaskScope("the closing of a port")
        self._ignore_keys = keys.on_change(self._recheck)
        self._closing = False

    async def open(
        self, principal: Principal, session: Session, port: int, seconds: int
    ) -> OpenPort:
        """Opens a port for that time, or gives an open one a new time.

        Raises: the errors of `Session.check_open`; BusyError if the session has too many;
        ConflictError if the port is just being closed; AuditUnavailableError,
        CapacityExhaustedError, RateLimitedError.
        """
        ports = session.ports
        async with ports.lock:
            session.check_open()
            await self._check_pack(principal, session, port)
            self._recorder.check_room(session)
            known = ports.open.get(port)
            if known is not None and known.closing:
                raise ConflictError(f"port {port} is being closed: try again")
            if known is None and len(ports.open) >= self._limits.ports:
                raise BusyError(f"the session has {self._limits.ports} open ports: close one")
            opened = known or OpenPort(port, secrets.token_hex(16), now())
            until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
            draft = EventDraft(
                "port.open",
                actor=principal.name,
                args={"port": port, "seconds": seconds},
                result={"expires_at": time_text(until)},
            )
            await self._recorder.record(
                session, draft, port_rows.opening(session.key, opened, principal.account, until)
            )
            opened.opened_by, opened.expires_at = principal.account, until
            self._hold(session, opened)
            if not session.live:  # it ended meanwhile
                self._end(session, opened, _SYSTEM, "session ended")
        return opened

    def tunnels(self, session: Session) -> Tunnels:
        """The connections to its ports. Raises: the errors of `Session.check_open`."""
        return self._way.tunnels(session.check_open())

    async def _check_pack(self, principal: Principal, session: Session, port: int) -> None:
        """Raises: PermissionDeniedError if the session is limited to a context pack."""
        if session.pack is None:
            return
        message = "a session with a context pack has no network, and no open ports"
        draft = EventDraft(
            "port.open", actor=principal.name, rule=TOOL, args={"port": port}, error=message
        )
        await self._recorder.refuse(session, draft)
        raise PermissionDeniedError(message, rule=TOOL)

    async def close(self, principal: Principal, session: Session, port: int) -> OpenPort:
        """Closes a port, and returns it when that is on record, as far as possible.

        Raises: NotFoundError if it is not open.
        """
        found = session.ports.open.get(port)
        if found is None:
            raise NotFoundError(f"port {port} of the session is not open")
        await self._close(session, found, principal.name, "closed")
        return found

    def link(self, port: OpenPort) -> str:
        """The token of a link that holds until the port closes."""
        return link_token(self._secret, port.opening, int(port.expires_at.timestamp()))

    def holds(self, port: OpenPort, token: str) -> int | None:
        """When a link's token expires, in unix seconds; None if it does not hold for the port."""
        return expiry(self._secret, port.opening, token, time.time())

    async def ended(self, session: Session) -> None:
        """Records that the ports of an ended session are closed."""
        await self._end_all(session)

    async def recover(self, sessions: Iterable[Session]) -> None:
        """Takes over the ports that an earlier control plane has opened."""
        by_key = {session.key: session for session in sessions}
        ended = []
        for key, port in await self._database.read(port_rows.stored):
            session = by_key.get(key)
            if session is None:
                await self._database.write(port_rows.closing(key, port.port))
                continue
            self._hold(session, port)
            if not session.live:
                ended.append(session)
        for session in ended:
            await self._end_all(session)
        self._recheck()

    async def shut_down(self) -> None:
        """Ends connections and timers; the ports are open again after the next start."""
        self._closing = True
        self._ignore_keys()
        for session in self._sessions.values():
            for port in session.ports.open.values():
                port.end()
        await self._tasks.drain()

    def _hold(self, session: Session, port: OpenPort) -> None:
        session.ports.open[port.port] = port
        self._sessions[session.key] = session
        port.stop_timer()
        left = (port.expires_at - datetime.now(UTC)).total_seconds()
        port.timer = asyncio.get_running_loop().call_later(
            max(0.0, left), self._close_soon, session, port, "expired"
        )

    def _recheck(self) -> None:
        """Closes the ports whose key is not valid any more."""
        for session in self._sessions.values():
            for port in session.ports.open.values():
                if not self._allowed(session, port):
                    self._close_soon(session, port, "key revoked")

    def _allowed(self, session: Session, port: OpenPort) -> bool:
        key = self._keys.named(port.opened_by)
        return (
            key is not None
            and key.role in _MANAGERS
            and (key.expires_at is None or key.expires_at > datetime.now(UTC))
            and key.may_see(session.key, session.owner)
            and self._glass.allows(key, session.key, session.owner)
        )

    def _close_soon(self, session: Session, port: OpenPort, why: str) -> None:
        port.end()
        if not self._closing:
            self._tasks.spawn(self._close(session, port, _SYSTEM, why))

    async def _close(self, session: Session, port: OpenPort, actor: str, why: str) -> None:
        port.end()
        async with session.ports.lock:
            self._end(session, port, actor, why)
        await self._stops.recorded(session)

    async def _end_all(self, session: Session) -> None:
        async with session.ports.lock:
            for port in list(session.ports.open.values()):
                self._end(session, port, _SYSTEM, "session ended")
        await self._stops.recorded(session)

    def _end(self, session: Session, port: OpenPort, actor: str, why: str) -> None:
        """Closes it, once; the caller holds the lock."""
        port.end()
        if session.ports.open.get(port.port) is not port:
            return
        del session.ports.open[port.port]
        if not session.ports.open:
            del self._sessions[session.key]
        draft = EventDraft(
            "port.close",
            actor=actor,
            args={"port": port.port},
            result={"reason": why, "requests": port.requests},
            time=now(),
            stop=True,
        )
        effect = port_rows.closing(session.key, port.port)
        self._stops.add(session, lambda: self._recorder.record(session, draft, effect))
