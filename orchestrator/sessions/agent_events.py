"""Puts on record what sandbox agents report, together with what it uses of a session's budget."""

from orchestrator.audit.recorded import Recorded
from orchestrator.audit.recorder import Recorder
from orchestrator.link.messages import AgentEvent
from orchestrator.sessions.budgets import Budgets
from orchestrator.sessions.session import Session
from orchestrator.task_scope import TaskScope


class AgentEvents:
    """Records events of agents; nobody acts on an event before that."""

    def __init__(self, recorder: Recorder, budgets: Budgets) -> None:
        self._recorder = recorder
        self._budgets = budgets
        self._ends = TaskScope("the end of a session over its budget")

    async def record(self, session: Session, event: AgentEvent) -> tuple[AgentEvent, Recorded]:
        """The event as it is on record, and its place there. Raises: AuditUnavailableError."""
        event, effect = self._budgets.take(session, event)
        try:
            recorded = await self._recorder.record_agent_event(session, event, effect)
        finally:
            if event.operation == "budget.exceeded":  # whatever the ledger says
                self._ends.spawn(self._budgets.end(session))
        return event, recorded

    async def close(self) -> None:
        """Ends what is under way; the next start ends such sessions."""
        await self._ends.close()
