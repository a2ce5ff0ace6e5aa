"""Exchanges a session's sandbox for one at another level; its output goes with it."""

from collections.abc import Awaitable, Callable

from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.record.audit.gaps import Gaps
from orchestrator.rules.policy.levels import Level, SessionLimits
from orchestrator.sandbox.sandboxes.session_sandboxes import Sandboxes
from orchestrator.state import session_rows
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.work.commands.output_moves import Move


class SandboxExchange:
    """Ends a session's sandbox, and starts its next one. The caller holds the session's lock."""

    def __init__(self, database: Database, gaps: Gaps, sandboxes: Sandboxes) -> None:
        self._database = database
        self._gaps = gaps
        self._sandboxes = sandboxes

    async def start(
        self,
        session: Session,
        level: Level,
        limits: SessionLimits,
        move: Move,
        pin: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Starts the new sandbox; `pin` records the level if that is not done yet.

        `move` carries the output that goes with it.
        """
        new = session.sandbox = await self._sandboxes.start(session, level, limits)
        FaultPoint.LEVEL_STARTED.reached()
        if pin is not None:
            await pin()
        await self._database.write(
            session_rows.updating(session, sandbox=new.name, container_id=new.container_id)
        )
        FaultPoint.LEVEL_STORED.reached()
        session.set_level(level)
        session.limits = limits
        await move.give(session, new.link)

    async def end(self, session: Session, move: Move, seconds: float) -> None:
        """Ends the old sandbox's commands, takes over its events and output, and removes it.

        `seconds` is the time limit for its output. It is removed before the new one starts, so that
        no sandbox uses the workspace while its size changes.
        """
        old, session.sandbox = session.sandbox, None
        if old is None:
            return
        handed_over = False
        try:
            # Written before the sandbox ends: a start that finds the session without a sandbox
            # knows that it did not crash.
            await self._database.write(
                session_rows.updating(session, sandbox=None, container_id=None)
            )
            handed_over = await self._sandboxes.quiesce(old, "level_changed")
            FaultPoint.LEVEL_ENDED.reached()
            if handed_over:  # nothing of it runs any more
                await move.take(session, old.link, seconds)
        finally:
            await self._remove(session, old, handed_over=handed_over)
        FaultPoint.LEVEL_REMOVED.reached()

    async def discard(self, session: Session, sandbox: Sandbox | None) -> None:
        """Removes the sandbox that the session had, with what is in it."""
        session.sandbox = None
        if sandbox is not None:
            await self._remove(session, sandbox, handed_over=False)

    async def _remove(self, session: Session, sandbox: Sandbox, *, handed_over: bool) -> None:
        """Removes it, and records what was lost with it, because the session continues."""
        terminals = [] if handed_over else sorted(session.terminals)
        await self._sandboxes.discard(sandbox)
        await self._gaps.close(session, terminals)
