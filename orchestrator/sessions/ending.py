"""Ends sessions: on record first, then everything of the sandbox is released."""

from collections.abc import Callable

from orchestrator.audit.events import now
from orchestrator.engine.base import Container, Engine
from orchestrator.errors import PaddockError
from orchestrator.keys import Principal, Role
from orchestrator.sessions import registry
from orchestrator.sessions.deadlines import Deadline, Deadlines
from orchestrator.sessions.lifecycle import Rationale, Status, Termination
from orchestrator.sessions.outcome import exit_result
from orchestrator.sessions.recorder import Recorder
from orchestrator.sessions.registry import Registry
from orchestrator.sessions.sandbox import Sandbox, Sandboxes
from orchestrator.sessions.session import Session
from sandbox_agent.protocol import BUDGET_REASON

# Who acts when nobody asked.
SYSTEM = Principal("system", Role.ADMIN)


class Ending:
    """The one way in which sessions end."""

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        sandboxes: Sandboxes,
        sessions: Registry,
        deadlines: Deadlines,
        scrub: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._sandboxes = sandboxes
        self._registry = sessions
        self._deadlines = deadlines
        self._scrub = scrub

    async def run(
        self,
        session: Session,
        principal: Principal,
        status: Status,
        rationale: Rationale,
        *,
        exit_code: int | None = None,
        error: str | None = None,
        deadline: str | None = None,
        container_id: str | None = None,
    ) -> None:
        """Ends a session that lives, then releases its sandbox.

        `deadline` names the one that the session ran into. With `container_id`, only while
        that is its container: a sandbox that was replaced may end as it likes.
        """
        async with session.lock:
            sandbox = session.sandbox
            current = None if sandbox is None else sandbox.container_id
            if not session.live or container_id not in (None, current):
                return
            success = status is Status.COMPLETED
            termination = Termination(
                rationale, "SUCCESS" if success else "FAILURE", exit_code, now()
            )
            await self._recorder.record(
                session,
                "session.terminated",
                actor=principal.name,
                result={
                    "status": str(status),
                    "rationale_code": str(rationale),
                    **({} if deadline is None else {"deadline": deadline}),
                },
                error=error,
                effect=registry.with_end(session, status, termination),
            )
            was_paused = session.status is Status.PAUSED
            session.status, session.termination, session.sandbox = status, termination, None
            self._registry.end(session)
            self._deadlines.forget(session)
            try:
                if session.env:
                    session.env = {}
                    self._scrub()
                await self._release(sandbox, rationale, was_paused)
                await self._close_gap(session)
            finally:
                session.over.set_result(None)

    async def _release(
        self, sandbox: Sandbox | None, rationale: Rationale, was_paused: bool
    ) -> None:
        if sandbox is None:
            return
        if rationale is Rationale.CRASH:
            await self._sandboxes.discard(sandbox)
            return
        if was_paused:
            try:  # frozen, it could not hand over its last events
                await self._engine.resume(sandbox.container_id)
            except PaddockError:
                await self._sandboxes.discard(sandbox)
                return
        exhausted = rationale is Rationale.BUDGET_EXHAUSTED
        reason = BUDGET_REASON if exhausted else "session_ended"
        await self._sandboxes.release(sandbox, reason, at_once=exhausted)

    async def _close_gap(self, session: Session) -> None:
        """Says on record which commands' ends were lost with the sandbox."""
        lost = session.running
        if not lost:
            return
        recorded = await self._recorder.record(
            session,
            "audit.gap",
            actor="system",
            args={"commands": [command.id for command in lost]},
            error="the sandbox ended before it reported these commands' ends",
        )
        for command in lost:
            error = "the end of this command was lost with its sandbox"
            command.finish(exit_result(None, error, None, None, recorded.seq, recorded.hash))

    async def expire(self, session: Session, deadline: Deadline) -> None:
        """Ends a session that has run into that deadline; of its budget it is on record."""
        exceeded = session.budget.exceeded
        if deadline is Deadline.BUDGET and exceeded is not None:
            status, rationale = Status.BUDGET_EXCEEDED, Rationale.BUDGET_EXHAUSTED
            error = exceeded.error().detail
        elif deadline is Deadline.WALL:
            status, rationale = Status.ABORTED, Rationale.TIMEOUT
            error = f"the session existed for {session.wall_timeout} s: its wall_timeout is over"
        else:
            status, rationale = Status.ABORTED, Rationale.TIMEOUT
            error = f"the session was idle for {session.idle_timeout} s"
        await self.run(session, SYSTEM, status, rationale, error=error, deadline=deadline)

    async def crashed(self, session: Session, container: Container) -> None:
        """The session's container has ended by itself."""
        try:
            said = (await self._engine.logs(container.id)).strip()[-1000:]
        except PaddockError:
            said = ""
        await self.run(
            session,
            SYSTEM,
            Status.ABORTED,
            Rationale.CRASH,
            exit_code=container.exit_code,
            error=f"the sandbox ended by itself: {said or 'its agent said nothing'}",
            container_id=container.id,
        )
