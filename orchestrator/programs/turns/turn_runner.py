"""Runs a turn: drives its program to the end, and records that once."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from orchestrator.ground.events import now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.ground.loop_slots import LoopSlots
from orchestrator.ground.store.effect import together
from orchestrator.ground.task_scope import TaskScope
from orchestrator.programs.turns import turn_rows
from orchestrator.programs.turns.driver import ProgramDriver, SessionExceeded
from orchestrator.programs.turns.notes import Notes
from orchestrator.programs.turns.operation_log import OperationLog
from orchestrator.programs.turns.operations.context import OperationContext, Services
from orchestrator.programs.turns.operations.queries import OF_TURNS
from orchestrator.programs.turns.outcome import Outcome, Value, error, nonconverged
from orchestrator.programs.turns.programs import PolicyViolation
from orchestrator.programs.turns.runs.conversation import Conversation, saving
from orchestrator.programs.turns.scopes import Scopes
from orchestrator.programs.turns.script import PreparedScript
from orchestrator.programs.turns.terminals import TurnTerminals
from orchestrator.programs.turns.turn import StagedProposal, TurnRecord
from orchestrator.programs.turns.turn_end import (
    INTERRUPTED,
    KNOWN,
    outcome_of,
    outcome_of_error,
    shown,
    turn_end,
)
from orchestrator.programs.turns.turn_rows import Before
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.state import session_rows
from orchestrator.state.session import Session
from paddock.contract.words import Kind

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RunningTurn:
    """A turn that runs, and what it may use until it ends."""

    principal: Principal
    session: Session
    turn: TurnRecord
    notes: Notes
    log: OperationLog
    before: Before
    # It is stopped after this time.
    seconds: int
    # None: it is no run.
    conversation: Conversation | None = None
    began: float = field(default_factory=time.monotonic)
    # Its program, and the whole turn with the record of its end.
    work: asyncio.Task[Value] | None = None
    whole: asyncio.Task[TurnRecord] = field(init=False)
    # Whether the program came to its end, why the turn is being stopped, which budget ended it.
    finished: bool = False
    stopped: str | None = None
    exceeded: Kind | None = None
    # The rule of the policy that ended it, and what to do instead.
    refusal: dict[str, str | None] = field(default_factory=dict)

    def stop(self, reason: str) -> None:
        """Ends its program; the first reason counts."""
        if self.stopped is None:
            self.stopped = reason
            if self.work is not None:
                self.work.cancel()

    def used(self) -> dict[str, int]:
        """What it has used so far, for nested budgets: micro-dollars and microseconds."""
        return {
            "tokens": self.log.tokens,
            "cost": self.log.cost,
            "time": round((time.monotonic() - self.began) * 1_000_000),
            "iterations": len(self.log.events),
        }

    def metadata(self) -> dict[str, int]:
        """What it has taken so far, as an outcome shows it."""
        used = self.used()
        return {
            "time_ms": used["time"] // 1000,
            "tokens": used["tokens"],
            "cost_microdollars": used["cost"],
        }


class TurnRunner:
    """Drives turns and records their ends."""

    def __init__(self, services: Services, recorder: Recorder, lag: LoopLag) -> None:
        self._services = services
        self._recorder = recorder
        self._lag = lag
        self._loop_slots = LoopSlots()
        self._tasks = TaskScope("the program of a turn")

    async def run(self, running: RunningTurn, prepared: PreparedScript) -> TurnRecord:
        """Drives it to its end, and returns it once that is on record.

        Raises: AuditUnavailableError if it can't be recorded: the next start records its end.
        """
        session = running.session
        context = OperationContext(
            self._services,
            running.principal,
            session,
            running.turn.number,
            Scopes(session.policy, running.used),
            running.notes,
            running.log,
            TurnTerminals(
                self._services.tools,
                self._services.terminals,
                running.principal,
                session,
                self._tasks,
            ),
            running.conversation,
        )
        driver = ProgramDriver(context, self._recorder, self._loop_slots)
        try:
            with session.using():
                try:
                    outcome = await self._driven(running, driver, prepared)
                finally:
                    await context.terminals.close()
                return await self._end(running, driver, prepared, outcome)
        finally:
            running.log.end()
            if running.conversation is not None:
                running.conversation.feed.end()

    async def _run_program(self, driver: ProgramDriver, prepared: PreparedScript) -> Value:
        return await self._lag.measured("a turn", driver.run(prepared.program))

    async def _driven(
        self, running: RunningTurn, driver: ProgramDriver, prepared: PreparedScript
    ) -> Outcome:
        number, session = running.turn.number, running.session
        work = running.work = self._tasks.begin(self._run_program(driver, prepared))
        if running.stopped is not None:
            work.cancel()
        with _stopping_after(running):
            await asyncio.wait([work])
        if running.conversation is not None:
            running.conversation.open = False
        failure = None if work.cancelled() else work.exception()
        if failure is None and not work.cancelled():
            prepared.finish()
            running.finished = True
            return outcome_of(work.result(), len(driver.context.staged))
        if failure is None or _ends(session):
            if session.budget.exceeded is not None:
                return nonconverged(None, number, "budget")
            reason = running.stopped or "the session has ended"
            return error(f"the turn was stopped: {reason}", INTERRUPTED)
        if isinstance(failure, SessionExceeded):
            running.exceeded = failure.kind
        if isinstance(failure, PolicyViolation):
            running.refusal = {"rule": failure.rule, "remedy": failure.remedy}
        if not isinstance(failure, KNOWN):
            log.error("session %s: turn %d", session.id, number, exc_info=failure)
        return outcome_of_error(failure, number)

    async def _end(
        self,
        running: RunningTurn,
        driver: ProgramDriver,
        prepared: PreparedScript,
        outcome: Outcome,
    ) -> TurnRecord:
        FaultPoint.TURN_DRIVEN.reached()
        session, notes, metadata = running.session, running.notes, running.metadata()
        form = shown(outcome, {**metadata, **running.refusal})
        recorded = await self._recorder.cut(
            session,
            {
                "outcome": form,
                "printed": prepared.printed(),
                "proposals": [
                    StagedProposal(*staged, time).json() for staged, time in driver.context.staged
                ],
                "notes": notes.stored(),
            },
        )
        remaining = session.budget.view(datetime.now(UTC)).remaining
        turn = replace(
            running.turn,
            ended_at=now(),
            outcome=recorded["outcome"],
            printed=recorded["printed"],
            proposals=tuple(recorded["proposals"]),
            tokens_used=running.before.tokens_since(session.budget),
            operations=len(running.log.events),
            budget_remaining={str(kind): remaining[kind] for kind in OF_TURNS},
        )
        kept = Notes.restored(recorded["notes"]) if running.finished else None
        draft = turn_end(
            turn,
            running.principal.name,
            metadata["time_ms"],
            is_run=running.conversation is not None,
        )
        ending, size = turn_rows.ending(session.key, turn, kept)
        timeline, timeline_size = saving(running.conversation)
        kept_with = together(
            ending,
            session_rows.with_budget(session),
            session_rows.counting(session.key, size),
            timeline,
        )
        await self._recorder.record(session, draft, kept_with)
        FaultPoint.TURN_ENDED.reached()
        self._recorder.count(session, size + timeline_size)
        return turn


@contextmanager
def _stopping_after(running: RunningTurn) -> Iterator[None]:
    """Stops the turn when its time has passed."""
    reason = f"its time limit of {running.seconds} seconds has passed"
    handle = asyncio.get_running_loop().call_later(running.seconds, running.stop, reason)
    try:
        yield
    finally:
        handle.cancel()


def _ends(session: Session) -> bool:
    """Whether the session is ending or has ended, which makes what runs in it fail."""
    frozen = session.sandbox is not None and session.sandbox.freezing is not None
    return frozen or session.ending or not session.live
