"""Commands that were recorded as started, and of which the agent knows nothing."""

import asyncio
from contextlib import suppress

from orchestrator.ground.errors import PaddockError, PermissionDeniedError, SandboxUnavailableError
from orchestrator.ground.events import EventDraft
from orchestrator.record.audit.recorder import Recorder
from orchestrator.state.command import Command, exit_of
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session


class LostCommands:
    """Finds them, and records their ends."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def record(self, session: Session, command: Command, error: PaddockError) -> None:
        """Records, once, that the command did not run, or that nothing more is known about it.

        If that fails, it counts as running. The agent's next hello, or the end of the sandbox,
        repeats the attempt.
        """
        rule = error.fields.get("rule")
        losing = command.losing = asyncio.get_running_loop().create_future()
        try:
            recorded = await self._recorder.record(
                session,
                EventDraft(
                    "command.exit",
                    actor="system",
                    decision="deny" if isinstance(error, PermissionDeniedError) else None,
                    rule=rule,
                    args={"command_id": command.id},
                    error=error.detail,
                    command_id=command.id,
                ),
            )
        except BaseException:
            command.dispatched = True
            raise
        finally:
            command.losing = None
            losing.set_result(None)
        command.dispatched = False
        detail = recorded.event["error"]
        place = recorded.seq, recorded.hash, recorded.time
        command.finish(exit_of(None, detail, rule, None, *place))

    async def reconcile(self, session: Session, sandbox: Sandbox, suspects: list[Command]) -> None:
        """Ends those of the commands that, according to the agent, neither run nor ended."""
        with suppress(SandboxUnavailableError):
            # Repeated events arrive before this answer.
            stats = await sandbox.link.request("stats", {})
            await sandbox.link.settled()
            known = stats.get("running")
            for command in suspects:
                # Another check, after another hello, may have declared it lost already.
                suspect = command.dispatched and not command.ended and command.losing is None
                if suspect and isinstance(known, list) and command.id not in known:
                    lost = "the command was not started, or its end is lost"
                    await self.record(session, command, SandboxUnavailableError(lost))
