"""Records a tool's output between lines, which answers no line."""

from orchestrator.ground.events import EventDraft, Made
from orchestrator.record.audit.recorder import Recorder
from orchestrator.work.terminals import transcript
from orchestrator.work.terminals.live import Live

# Characters per piece; the terminal's evidence has the complete output.
_MOST = 2000


async def record(recorder: Recorder, live: Live) -> None:
    """Takes it from the terminal.

    Raises: AuditUnavailableError, EvidenceError, the errors of `Recorder.told`.
    """
    for late in await live.terminal.take_late():
        # Room for a whole secret beyond the kept text, because its end alone would not be
        # recognized.
        beginning = late.text[: _MOST + live.session.secrets.redactor.margin]
        text = (await recorder.cut(live.session, beginning))[:_MOST]
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
