"""Records what was lost with a sandbox that could not hand over its events."""

import asyncio

from orchestrator.ground.events import EventDraft, Made
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.state.command import CommandExit, exit_of
from orchestrator.state.session import Session
from sandbox_agent.decide.protocol import MOST_UNACKNOWLEDGED_EXECS, MOST_UNACKNOWLEDGED_REPEATS

_MISSING = (
    "where executions are recorded, of each, "
    f"up to {MOST_UNACKNOWLEDGED_EXECS} programs that it executed last may be missing, and "
    f"up to {MOST_UNACKNOWLEDGED_REPEATS} repetitions of what is on record"
)


class Gaps:
    """Closes gaps in the record of sessions whose sandbox is gone for good."""

    def __init__(self, recorder: Recorder, stops: StopRecords) -> None:
        self._recorder = recorder
        self._stops = stops

    async def close(self, session: Session, terminals: list[str]) -> None:
        """Records the lost ends of commands, and lost executions; the commands end with it.

        `terminals` are those that ended with the sandbox. A command that no agent was told to start
        is not lost if its session continues: its caller finds no sandbox. If this can't be recorded
        now, the record follows later, and with it the commands' ends.
        """
        commands = [
            command for command in session.running if command.dispatched or not session.live
        ]
        error = (
            f"the sandbox ended before it reported these commands' and terminals' ends; {_MISSING}"
        )

        async def write() -> None:
            # The ends of some may be recorded meanwhile.
            losing = [command.losing for command in commands if command.losing is not None]
            if losing:
                await asyncio.wait(losing)
            lost = [command for command in commands if not command.ended]
            if not lost and not terminals:
                return
            recorded = await self._recorder.record(
                session,
                EventDraft(
                    "audit.gap",
                    actor="system",
                    made=Made(
                        {"commands": [command.id for command in lost], "terminals": terminals}
                    ),
                    error=error,
                    stop=True,
                ),
            )
            for command in lost:
                command.finish(lost_end(recorded.seq, recorded.hash))

        if not commands and not terminals:
            return
        self._stops.add(session, write)
        await self._stops.recorded(session)


def lost_end(seq: int, digest: str) -> CommandExit:
    """The result of a command whose end is lost: the event of the gap says so."""
    detail = "the end of this command was lost with its sandbox"
    return exit_of(None, detail, None, None, seq, digest)
