"""Records what sandbox agents report, together with the session's budget consumption."""

from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.link.messages import AgentEvent
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.recorded import Recorded
from orchestrator.record.audit.recorder import Recorder
from orchestrator.state.session import Session


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
