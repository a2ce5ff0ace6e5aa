"""Starts runs. Messages that are sent during a run join it, and get its result."""

import asyncio

from orchestrator.ground.errors import ConflictError
from orchestrator.programs.turns.session_turns import SessionTurns
from orchestrator.programs.turns.turn import AgentRun, TurnRecord
from orchestrator.programs.turns.turn_runner import RunningTurn
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session


async def run_or_join(
    turns: SessionTurns, principal: Principal, session: Session, run: AgentRun
) -> RunningTurn | TurnRecord:
    """Starts a run, or queues the messages for the run that is going on.

    Raises: the errors of `SessionTurns.start` and `RunQueue.add`; ConflictError while another turn
    runs.
    """
    last = 0
    while True:
        await turns.started(session.key)
        running = turns.running(session.key)
        if running is None:
            return await turns.start(principal, session, run)
        conversation = running.conversation
        if conversation is None:
            raise ConflictError("a turn of this session is running: wait for it, or interrupt it")
        if run.messages:
            last = (await turns.queue.add(principal, session, run.messages)).seq
            run = run._replace(messages=())
        if conversation.open:
            conversation.arrived += 1
            return running
        if last and conversation.taken >= last:
            return running
        await asyncio.wait([running.whole])
