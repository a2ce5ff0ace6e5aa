"""Puts on record what a tool said between lines: the terminal's own, and nobody's answer."""

from orchestrator.audit.events import EventDraft, Made
from orchestrator.audit.recorder import Recorder
from orchestrator.terminals import transcript
from orchestrator.terminals.live import Live

# Of one piece, in characters; all of it is in the terminal's evidence.
_MOST = 2000


async def record(recorder: Recorder, live: Live) -> None:
    """Takes it from the terminal.

    Raises: AuditUnavailableError, EvidenceError, what `Recorder.told` does.
    """
    for late in await live.terminal.take_late():
        # Room for a whole secret beyond what is kept: of its end nobody could tell what it is.
        beginning = late.text[: _MOST + live.session.secrets.redactor.margin]
        text = (await recorder.told(live.session, beginning))[:_MOST]
        live.evidence.note("LATE", transcript.late(text, late.raw_bytes))
        await live.evidence.flush()
        await recorder.record(
            live.session,
            EventDraft(
                "pty.output",
                actor="system",
                args={"tool": live.terminal.spec.tool},
                result={"output": text},
                made=Made({"terminal_id": live.id}, {"output_bytes": late.raw_bytes}),
            ),
        )
