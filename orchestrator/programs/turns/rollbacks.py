"""Rollbacks by turns: they discard what their session has staged."""

from orchestrator.ground.task_scope import TaskScope
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session
from orchestrator.work.proposals.listing import StagedCounts
from orchestrator.work.proposals.proposals import Proposals


class TurnRollbacks:
    """Rolls back for turns. A rollback completes even if its turn is interrupted meanwhile."""

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals
        self._tasks = TaskScope("the rollback of a turn")

    async def roll_back(self, principal: Principal, session: Session, turn: int) -> StagedCounts:
        """Discards everything that is staged; returns how much that was.

        The session gets a new sandbox at its next use; if nothing is staged, it keeps its own.
        Raises: the errors of `Proposals.rollback`.
        """
        session.check_live()
        if not session.stages or await self._proposals.counts(session) == StagedCounts():
            return StagedCounts()
        return await self._tasks.shield(self._proposals.rollback(principal, session, turn))

    async def drain(self) -> None:
        """Waits for running rollbacks."""
        await self._tasks.drain()
