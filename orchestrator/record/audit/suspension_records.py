"""The events of suspensions, with the rows that commit with them."""

from typing import Any

from orchestrator.ground.events import EventDraft, Made
from orchestrator.record.audit.recorder import Recorder
from orchestrator.state import session_rows
from orchestrator.state.session import Session

SYSTEM = "system"


async def record_suspended(
    recorder: Recorder, session: Session, args: dict[str, Any], error: str | None = None
) -> None:
    """Records that the session has no sandbox; output of its commands is lost with that.

    With `error`, it is a stop. Raises: AuditUnavailableError.
    """
    lost = [command.id for command in session.commands.values() if command.output_bytes]
    await recorder.record(
        session,
        EventDraft(
            "session.suspended",
            actor=SYSTEM,
            args=args,
            made=Made(result={"output_lost": lost}),
            error=error,
            stop=error is not None,
        ),
        effect=session_rows.suspending(session),
    )


async def record_kept(recorder: Recorder, session: Session) -> None:
    """Records that it was not suspended after all: what its row says is not known."""
    if session.live and session.sandbox is not None and session.suspension is None:
        await recorder.record(
            session,
            EventDraft(
                "session.restored",
                actor=SYSTEM,
                error="the suspension could not be recorded, and did not take place",
                stop=True,
            ),
            effect=session_rows.restored(session),
        )
