"""Freezes sessions that other nodes may take over, as long as this node may not be theirs.

Freezing acts first and is recorded after. They go on once the lease is back and their places are
still this node's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from orchestrator.cluster import fence
from orchestrator.cluster.base import Membership
from orchestrator.ground.errors import ClusterUnavailableError, PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.host.engine.base import Engine
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.link.vouching import Vouching
from orchestrator.host.node.boot import boottime
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.sandbox.sandboxes.stopper import Stopper
from orchestrator.state import session_rows
from orchestrator.state.registry import Registry
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from paddock.contract.words import Status

log = logging.getLogger(__name__)

# While the fence is closed: a sandbox whose start was under way when it closed is found by looking.
_LOOK_SECONDS = 1.0
_ROUND_SECONDS = 60.0
_SYSTEM = "system"


class Fencing:
    """Of this node's sessions with `recovery: snapshot`."""

    def __init__(
        self,
        membership: Membership,
        sessions: Registry,
        engine: Engine,
        stopper: Stopper,
        recorder: Recorder,
        stops: StopRecords,
        vouching: Vouching,
        compare: Callable[[], Awaitable[None]],
        resumed: Callable[[Session], Awaitable[None]],
        hello_timeout: float,
        clock: Callable[[], float] = boottime,
    ) -> None:
        """`compare` ends sessions whose places are other nodes'.

        `resumed` takes up what runs in a session that goes on.
        """
        self._membership = membership
        self._registry = sessions
        self._engine = engine
        self._stopper = stopper
        self._recorder = recorder
        self._stops = stops
        self._vouching = vouching
        self._compare = compare
        self._resumed = resumed
        self._hello_timeout = hello_timeout
        self._clock = clock
        # When the renewal was sent that was seen last.
        self._seen = float("-inf")
        # What is frozen here, by the session's key.
        self._frozen: dict[str, Sandbox] = {}
        # The agents that are just being told that they may go on.
        self._told: set[AgentLink] = set()
        self._telling = TaskScope("a word for a sandbox's agent")
        self._renewed = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    async def start(self, tasks: Tasks) -> None:
        """Begins; what must stand still now does when this returns."""
        self._membership.on_renewal(self._renewed.set)
        self._registry.outlived = self._outlived
        self._seen = self._membership.renewed_at
        if self._decide().closed:
            await self._close_all()
        else:
            for session in self._sessions():
                if session.fenced and session.sandbox is not None:  # by an earlier run
                    self._frozen[session.key] = session.sandbox
        self._task = tasks.start(TaskName.FENCING, self._run, rounds=self._rounds)

    async def close(self) -> None:
        """Freezes all of them: nobody here looks after them until the next start."""
        if self._task is not None:
            await self._task.close()
            await self._telling.close()
            await self._close_all()
            await asyncio.gather(*map(self._stops.recorded, self._sessions()))

    def _sessions(self) -> list[Session]:
        return [each for each in self._registry.live if each.recovers and each.place]

    def _decide(self) -> fence.Fence:
        return fence.decide(self._membership.renewed_at, self._clock())

    def _passed_over(self) -> bool:
        return fence.passed_over(self._seen, self._membership.renewed_at)

    def _outlived(self) -> bool:
        """Whether they must stand still, also if nothing has been frozen yet."""
        return self._decide().closed or self._passed_over()

    async def _run(self) -> None:
        while True:
            self._renewed.clear()
            now, passed_over = self._decide(), self._passed_over()
            seen = self._membership.renewed_at
            with self._rounds.round() as this:
                try:
                    if now.closed or passed_over:
                        await self._close_all()
                    self._seen = seen
                    if not now.closed:
                        await self._open_all()
                    self._vouch_all()
                except ClusterUnavailableError as error:
                    this.failed = True
                    log.warning("sessions stay frozen: %s", error.detail)
            waiting = _LOOK_SECONDS if now.closed or self._fenced() else now.seconds
            with suppress(TimeoutError):
                async with asyncio.timeout(waiting):
                    await self._renewed.wait()

    def _fenced(self) -> list[Session]:
        return [each for each in self._sessions() if each.fenced]

    async def _close_all(self) -> None:
        """Freezes each that is not frozen yet, all at the same time."""
        await asyncio.gather(*map(self._close, self._sessions()))

    async def _close(self, session: Session) -> None:
        begins = not session.fenced
        session.fenced = True
        sandbox = session.sandbox
        if sandbox is not None and self._frozen.get(session.key) is not sandbox:
            self._frozen[session.key] = sandbox
            # What is paused is frozen already, unless it is just being resumed.
            if session.status is not Status.PAUSED or session.lock.locked():
                try:
                    await self._stopper.hold(sandbox)
                except PaddockError as error:  # then it was killed, which the engine reports
                    log.warning("session %s: %s", session.id, error.detail)
        if begins:
            log.warning("session %s stands still: this node has no lease", session.id)
            self._stops.add(session, lambda: self._record(session, "session.fenced"))

    def _vouch_all(self) -> None:
        """Has the agents of those that run go on. An agent that does not answer delays nothing."""
        for session in self._sessions():
            sandbox, runs = session.sandbox, session.status is Status.ACTIVE
            if sandbox is None or session.fenced or not runs or not sandbox.link.connected:
                continue
            if sandbox.link not in self._told:
                self._told.add(sandbox.link)
                self._telling.spawn(self._vouch(sandbox.link))

    async def _vouch(self, link: AgentLink) -> None:
        try:
            await self._vouching.vouch(link)
        except PaddockError as error:  # then its session stands still until the next word
            log.warning("a sandbox agent was not told that it may go on: %s", error.detail)
        finally:
            self._told.discard(link)

    async def _open_all(self) -> None:
        """Raises: ClusterUnavailableError, and all stay frozen."""
        if not self._fenced():
            return
        await self._compare()
        if not self._decide().closed:
            await asyncio.gather(*map(self._open, self._fenced()))

    async def _open(self, session: Session) -> None:
        """Lets it go on, or leaves that to the next try."""
        async with session.lock:
            if not session.live or not session.fenced or self._decide().closed:
                return
            sandbox = session.sandbox
            frozen = self._frozen.get(session.key) is sandbox
            thaws = frozen and session.status is Status.ACTIVE
            try:
                if sandbox is not None and thaws:
                    await self._thaw(sandbox)
                await self._record(session, "session.unfenced")
            except PaddockError as error:
                log.warning("session %s stays frozen: %s", session.id, error.detail)
                if sandbox is not None and thaws:
                    self._frozen.pop(session.key, None)
                    await self._close(session)
                return
            self._frozen.pop(session.key, None)
            session.fenced = False
        if sandbox is not None and thaws:
            sandbox.reopen()
            try:
                await sandbox.link.wait_connected(self._hello_timeout)
                await self._vouching.vouch(sandbox.link)
                await self._resumed(session)
            except PaddockError as error:
                log.warning("session %s goes on, but: %s", session.id, error.detail)

    async def _thaw(self, sandbox: Sandbox) -> None:
        if sandbox.freezing is not None:  # by a change of its level that the fence has ended
            await self._stopper.let_go(sandbox)
        else:
            await self._engine.resume(sandbox.container_id)

    async def _record(self, session: Session, operation: str) -> None:
        stops = operation == "session.fenced"
        await self._recorder.record(
            session,
            EventDraft(operation, actor=_SYSTEM, stop=stops),
            effect=session_rows.updating(session, fenced=int(stops)),
        )
