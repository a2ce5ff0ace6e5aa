"""Ends sessions: freezes what runs, records the end, then releases the sandbox."""

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.store.effect import together
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import Container
from orchestrator.host.open import HostFloor
from orchestrator.record.audit.gaps import Gaps
from orchestrator.record.audit.stop_records import Write
from orchestrator.record.open import RecordFloor
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sandbox.sandboxes.stopper import Stopper
from orchestrator.sessions.deadlines import Deadline, Deadlines, due
from orchestrator.sessions.in_cluster.record_shipping import RecordShipping
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.sessions.spawn_ends import SpawnEnds
from orchestrator.state import session_pages, session_rows
from orchestrator.state.family import leave
from orchestrator.state.lifecycle import Termination
from orchestrator.state.registry import Registry
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from paddock.contract.words import Rationale, Status
from sandbox_agent.decide.protocol import BUDGET_REASON

log = logging.getLogger(__name__)

_ENDING = "the session is ending"
# The actor when nobody requested the end.
SYSTEM = Principal("system", Role.ADMIN)


class SessionEnds:
    """The only way in which sessions end."""

    def __init__(
        self,
        ground: GroundFloor,
        host: HostFloor,
        record: RecordFloor,
        sandbox: SandboxFloor,
        stopper: Stopper,
        gaps: Gaps,
        sessions: Registry,
        places: SessionPlaces,
        deadlines: Deadlines,
        spawn_ends: SpawnEnds,
        shipping: RecordShipping,
    ) -> None:
        self._engine = host.engine
        self._recorder = record.recorder
        self._stopper = stopper
        self._stops = record.stops
        self._gaps = gaps
        self._sandboxes = sandbox.sandboxes
        self._registry = sessions
        self._places = places
        self._deadlines = deadlines
        self._spawn_ends = spawn_ends
        self._shipping = shipping
        self._workspaces = sandbox.workspaces
        self._scrub = ground.scrub
        self._children = TaskScope("the end of a child")

    async def run(
        self,
        session: Session,
        principal: Principal,
        status: Status,
        rationale: Rationale,
        *,
        exit_code: int | None = None,
        error: str | None = None,
        deadline: Deadline | None = None,
        container_id: str | None = None,
        first: Write | None = None,
        then: EventDraft | None = None,
        held: bool = False,
    ) -> None:
        """Ends a live session and its children, and returns when nothing of them is left.

        It ends even if that can't be recorded; the record follows. `deadline` names the deadline
        that passed, `first` records what the client who ends it requested, `then` is recorded
        after the end. A session that was idle and is in use again does not end. With
        `container_id`, it ends only while that is its container, because the container of a
        replaced sandbox may end at any time. `held`: the caller has the session's lock.
        """
        crashed, idle = rationale is Rationale.CRASH, deadline is Deadline.IDLE
        if not crashed and not idle:
            await self._freeze_all(session)  # the lock's holder may be waiting for a disk
        async with nullcontext() if held else session.lock:
            sandbox = session.sandbox
            current = None if sandbox is None else sandbox.container_id
            if not session.live or container_id not in (None, current):
                return
            if idle and due(session, datetime.now(UTC)) is not Deadline.IDLE:
                return
            session.gate, session.ending = _ENDING, True
            thaws = await self._freeze_all(session, crashed=crashed)
            # Another life of it may run already, and nothing of this one may.
            thaws = thaws and rationale is not Rationale.MOVED and not session.fenced
            FaultPoint.CLOSE_FROZEN.reached()
            success = status is Status.COMPLETED
            termination = Termination(
                rationale, "SUCCESS" if success else "FAILURE", exit_code, now()
            )
            if first is not None:
                self._stops.add(session, first)
            result = {
                "status": str(status),
                "rationale_code": str(rationale),
                **({} if deadline is None else {"deadline": deadline}),
            }
            # Recorded before its own end, after which nothing is.
            self._spawn_ends.of_children(session)
            self._record_end(session, principal, status, termination, result, error)
            self._record_in_parent(session, status, error)
            if then is not None:
                self._record(session, then, FaultPoint.REFINE_ENDED)
            hands_over = await self._stops.recorded(session) and thaws
            FaultPoint.CLOSE_RECORDED.reached()
            terminals = [] if hands_over else sorted(session.terminals)
            session.status, session.termination, session.sandbox = status, termination, None
            self._registry.end(session)
            self._deadlines.forget(session)
            session.terms = replace(session.terms, env={})
            children = self._children.spawn(self._end_children(session, status))
            try:
                try:
                    await self._silence(sandbox, rationale, hands_over)
                    FaultPoint.CLOSE_SILENCED.reached()
                    await self._gaps.close(session, terminals)
                    await self._sandboxes.ended(session)
                finally:
                    session.over.set_result(None)
            finally:
                if sandbox is not None:
                    await self._sandboxes.remove(sandbox)
                await self._sandboxes.unstage(session)
                await asyncio.wait([children])
                await self._leave(session)
                await self._shipping.ended(session)

    async def end_child(self, child: Session, error: str) -> None:
        """Aborts a child because of its parent; `error` says why."""
        await self.run(child, SYSTEM, Status.ABORTED, Rationale.NORMAL, error=error)

    async def _end_children(self, parent: Session, status: Status) -> None:
        """Ends what the session has spawned, also what is just being created."""
        completed = status is Status.COMPLETED
        status = Status.COMPLETED if completed else Status.ABORTED
        error = None if completed else "its parent has ended"
        family = parent.family
        while family.births or any(child.live for child in family.children.values()):
            ends = (
                self.run(child, SYSTEM, status, Rationale.NORMAL, error=error)
                for child in list(family.children.values())
            )
            await asyncio.gather(*ends)
            if family.births:
                await asyncio.wait(family.births)

    async def _leave(self, session: Session) -> None:
        """Removes the session from its family, and purges the workspace of a run's child."""
        origin, parent = session.family.origin, session.family.parent
        leave(session)
        if origin is None:
            return
        if parent is not None:
            await self._spawn_ends.recorded(parent)
        if origin.runs and not session.family.shares and await self._stops.recorded(session):
            try:
                await self._workspaces.finish_purge(session.workspace)
            except PaddockError as error:
                log.warning("the next start removes workspace %s: %s", session.id, error.detail)

    async def _freeze_all(self, session: Session, *, crashed: bool = False) -> bool:
        """Freezes the session, if it has not crashed, and all below it.

        Returns whether it has a sandbox that can be thawed.
        """
        above = [] if crashed else [session]
        frozen = await asyncio.gather(*map(self._freeze, (*above, *session.family.descendants)))
        return not crashed and frozen[0]

    async def _freeze(self, session: Session) -> bool:
        """Whether there is a sandbox, now frozen, that can be thawed."""
        if not session.live or session.sandbox is None:
            return False
        return await self._stopper.freeze(session.sandbox, ends=True)

    def _record_end(
        self,
        session: Session,
        principal: Principal,
        status: Status,
        termination: Termination,
        result: dict[str, Any],
        error: str | None,
    ) -> None:
        has_values = bool(session.terms.env)

        async def write() -> None:
            await self._recorder.record(
                session,
                EventDraft(
                    "session.terminated",
                    actor=principal.name,
                    result=result,
                    error=error,
                    time=termination.terminated_at,
                    stop=True,
                ),
                effect=together(
                    session_rows.with_end(session, status, termination),
                    self._places.released(session),
                    session_pages.forgetting(self._registry.ended_after),
                ),
            )
            if has_values:
                self._scrub()

        self._stops.add(session, write)

    def _record(
        self, session: Session, draft: EventDraft, before: FaultPoint | None = None
    ) -> None:
        async def write() -> None:
            if before is not None:
                before.reached()
            await self._recorder.record(session, draft)

        self._stops.add(session, write)

    def _record_in_parent(self, session: Session, status: Status, error: str | None) -> None:
        """Records the end in the parent, after the end itself.

        In the other order, the next start could find the child alive.
        """
        parent = session.family.parent
        if parent is None:
            return

        async def record() -> None:
            self._spawn_ends.of_child(parent, session, status, error)

        self._stops.add(session, record)

    async def _silence(self, sandbox: Sandbox | None, rationale: Rationale, thaws: bool) -> None:
        """Takes over the last events; if the agent can run for a while, it ends what runs."""
        if sandbox is None:
            return
        if thaws and await self._stopper.thaw(sandbox):
            exhausted = rationale is Rationale.BUDGET_EXHAUSTED
            reason = BUDGET_REASON if exhausted else "session_ended"
            await self._sandboxes.quiesce(sandbox, reason, at_once=exhausted)
        await self._sandboxes.silence(sandbox)

    async def expire(
        self, session: Session, deadline: Deadline, first: Write | None = None
    ) -> None:
        """Ends a session whose deadline has passed; a used up budget is on record already."""
        exceeded = session.budget.exceeded
        if deadline is Deadline.BUDGET and exceeded is not None:
            status, rationale = Status.BUDGET_EXCEEDED, Rationale.BUDGET_EXHAUSTED
            error = exceeded.error().detail
        elif deadline is Deadline.WALL:
            status, rationale = Status.ABORTED, Rationale.TIMEOUT
            error = (
                f"the session existed for {session.terms.wall_timeout} s: its wall_timeout is over"
            )
        else:
            status, rationale = Status.ABORTED, Rationale.TIMEOUT
            error = f"the session was idle for {session.terms.idle_timeout} s"
        await self.run(
            session, SYSTEM, status, rationale, error=error, deadline=deadline, first=first
        )

    async def moved(
        self, session: Session, first: Write | None = None, *, held: bool = False
    ) -> None:
        """Ends the session because its place is another node's now; the rest is as for `run`."""
        await self.run(
            session,
            SYSTEM,
            Status.ABORTED,
            Rationale.MOVED,
            error="the session's place is another node's",
            first=first,
            held=held,
        )

    async def crashed(self, session: Session, container: Container) -> None:
        """Ends the session because its container has ended by itself."""
        try:
            printed = (await self._engine.logs(container.id)).strip()[-1000:]
        except PaddockError:
            printed = ""
        await self.run(
            session,
            SYSTEM,
            Status.ABORTED,
            Rationale.CRASH,
            exit_code=container.exit_code,
            error=f"the sandbox ended by itself: {printed or 'its agent said nothing'}",
            container_id=container.id,
        )
