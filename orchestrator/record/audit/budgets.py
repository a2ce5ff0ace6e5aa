"""Enforces sessions' budgets: counts, detects exhaustion and records it."""

import logging
from dataclasses import replace
from datetime import UTC, datetime

from orchestrator.ground.errors import PaddockError, SandboxUnavailableError
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.link.messages import AgentEvent, session_totals
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.rules.access.keys import Principal
from orchestrator.state import session_rows
from orchestrator.state.budget import OF_COMMANDS
from orchestrator.state.end_requests import EndRequests
from orchestrator.state.session import Session
from paddock.contract.words import Kind

log = logging.getLogger(__name__)


class Budgets:
    """Counts consumption, which is stored with the event that causes it.

    Asks for the end of a session with an exceeded budget.
    """

    def __init__(
        self,
        recorder: Recorder,
        stops: StopRecords,
        metrics: Metrics,
        ends: EndRequests,
    ) -> None:
        self._recorder = recorder
        self._stops = stops
        self._metrics = metrics
        self._ends = ends

    async def admit(self, principal: Principal, session: Session) -> Effect:
        """Counts one more command; the effect stores this with the event of its start.

        Raises: BudgetExceededError if the budget is used up, in which case the session has ended;
        RateLimitedError, CapacityExhaustedError if there is no room to record it.
        """
        self._recorder.check_room(session)
        kind = session.budget.exhausted(datetime.now(UTC), OF_COMMANDS)
        if kind is not None:
            self.exceed(session, kind, principal.name)
            raise await self.refusal(session)
        session.budget.consume(Kind.COMMANDS, 1)
        return session_rows.with_budget(session)

    def withdraw(self, session: Session) -> None:
        """Takes back a counted command that was never started."""
        session.budget.give_back(Kind.COMMANDS, 1)

    async def report(
        self, principal: Principal, session: Session, tokens: int, microdollars: int
    ) -> None:
        """Counts what the session's host has used for calls of models that it made itself.

        The session ends if its budget is used up with them. Raises: the errors of
        `Session.check_not_ending`; RateLimitedError, CapacityExhaustedError if there is no room to
        record it, AuditUnavailableError: nothing is counted then.
        """
        session.check_not_ending()
        self._recorder.check_room(session)
        used = {Kind.TOKENS: tokens, Kind.COST: microdollars}
        for kind, amount in used.items():
            session.budget.consume(kind, amount)
        try:
            await self._recorder.record(
                session,
                EventDraft(
                    "budget.usage",
                    actor=principal.name,
                    decision="allow",
                    args={"tokens": tokens, "cost_microdollars": microdollars},
                    tokens_used=tokens,
                ),
                effect=session_rows.with_budget(session),
            )
        except BaseException:
            for kind, amount in used.items():
                session.budget.give_back(kind, amount)
            raise
        exhausted = session.budget.exhausted(datetime.now(UTC), used)
        if exhausted is not None and session.live:
            self.exceed(session, exhausted, principal.name)
            await self.end(session)

    def exceed(self, session: Session, kind: Kind, actor: str) -> None:
        """Records, once, that the session has used up its budget of that kind.

        The session takes no work from now on, and the caller must end it.
        """
        if session.budget.exceeded is not None:
            return
        exceeded = session.budget.exceed(kind, datetime.now(UTC))
        at = now()
        self._stops.add(
            session,
            lambda: self._recorder.record(
                session,
                EventDraft(
                    "budget.exceeded",
                    actor=actor,
                    decision="deny",
                    args=exceeded.recorded(),
                    error=exceeded.error().detail,
                    time=at,
                    stop=True,
                ),
                effect=session_rows.with_budget(session),
            ),
        )
        self._metrics.budget_exceeded(kind)

    async def refusal(self, session: Session) -> PaddockError:
        """The error for a command that the budget ended, once the session is gone."""
        exceeded = session.budget.exceeded
        if exceeded is None:
            return SandboxUnavailableError("the sandbox refused the command for its budget")
        await self._ends.expire(session)
        return exceeded.error()

    # Called for the agent's messages.

    def learn(self, session: Session, totals: dict[str, int]) -> None:
        """Stores the session's consumption as its agent counts it."""
        for kind, total in totals.items():
            session.budget.reach(Kind(kind), total)

    def take(self, session: Session, event: AgentEvent) -> tuple[AgentEvent, Effect | None]:
        """The event in the form to be recorded, and the effect to store with it."""
        if event.operation in ("command.exit", "pty.exit"):
            self.learn(session, session_totals(event.result or {}))
            return event, session_rows.with_budget(session)
        if event.operation != "budget.exceeded":
            return event, None
        kind = Kind(event.args["kind"])
        if kind not in session.budget.limits:
            log.warning(
                "session %s: its agent reports a budget that the session does not have", session.id
            )
            return event, None
        session.budget.reach(kind, event.args["consumed"])
        if session.budget.exceeded is None:
            self._metrics.budget_exceeded(kind)
        # Of the agent's report, only the kind and the consumption are trusted.
        exceeded = session.budget.exceed(kind, datetime.now(UTC))
        event = replace(event, args=exceeded.recorded(), error=exceeded.error().detail)
        return event, session_rows.with_budget(session)

    async def fill(self, session: Session) -> None:
        """Ends a session whose record has reached its limit."""
        self.exceed(session, Kind.AUDIT_BYTES, "system")
        await self.end(session)

    async def end(self, session: Session) -> None:
        """Ends a session with an exceeded budget; a failure is retried later."""
        if session.budget.exceeded is not None:
            try:
                await self._ends.expire(session)
            except PaddockError as error:
                log.error("session %s is over its budget: %s", session.id, error.detail)


class AgentEvents:
    """Records agents' events before anything acts on them."""

    def __init__(self, recorder: Recorder, budgets: Budgets) -> None:
        self._recorder = recorder
        self._budgets = budgets
        self._ends = TaskScope("the end of a session over its budget")

    async def record(self, session: Session, event: AgentEvent) -> tuple[AgentEvent, Recorded]:
        """The recorded event, and its place in the ledger. Raises: AuditUnavailableError."""
        event, effect = self._budgets.take(session, event)
        try:
            recorded = await self._recorder.record_agent_event(session, event, effect)
        finally:
            if event.operation == "budget.exceeded":  # whether or not the ledger can be written
                self._ends.spawn(self._budgets.end(session))
        return event, recorded

    async def close(self) -> None:
        """Ends background work; the next start ends such sessions."""
        await self._ends.close()
