"""The records of one line: in its terminal's transcript, and as events in the audit log."""

import hashlib
from typing import Any

from orchestrator.ground.events import EventDraft, Made
from orchestrator.record.audit.recorder import Recorder
from orchestrator.state import session_rows
from orchestrator.work.terminals import transcript
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.spec import LineApproval, LineVerdict, SentLine
from orchestrator.work.terminals.terminal import Answer, Wait


class LineRecord:
    """Records a line. Raises: AuditUnavailableError and EvidenceError, from every method."""

    def __init__(self, recorder: Recorder, live: OpenTerminal, sent: SentLine) -> None:
        self._recorder = recorder
        self._live = live
        self._sent = sent

    async def decided(self, verdict: LineVerdict, approval: LineApproval | None) -> None:
        """Records an allowed line in transcript and log before a byte reaches the tool.

        With `approval`, it is written although the verdict is `pending`.
        """
        decision = verdict.decision
        if decision == "pending" and approval is not None:
            decision = "allow"
            human = approval.approval.decided_by or ""
            self._live.evidence.note("APPROVAL", transcript.approved(human))
        await self._note(decision, verdict)
        session = self._live.session
        await self._recorder.record(
            session,
            EventDraft(
                "pty.interaction",
                actor=self._sent.principal.name,
                decision=decision,
                rule=verdict.rule,
                args=self._described(verdict),
                made=self._made(approval),
            ),
            # A line that is written was counted.
            effect=session_rows.with_budget(session) if decision == "allow" else None,
        )

    async def refused(
        self, rule: str, message: str, verdict: LineVerdict, approval: LineApproval | None
    ) -> None:
        """Records a line of which no byte reaches the tool."""
        await self._note("deny", verdict)
        await self.denied(rule, message, verdict, approval)

    async def denied(
        self, rule: str, message: str, verdict: LineVerdict, approval: LineApproval | None
    ) -> None:
        """Records only the event of a refusal."""
        await self._recorder.refuse(
            self._live.session,
            EventDraft(
                "pty.interaction",
                actor=self._sent.principal.name,
                rule=rule,
                args=self._described(verdict),
                made=self._made(approval),
                error=message,
            ),
        )

    async def answered(
        self, status: str, answer: Answer | None, error: str | None, duration_ms: int
    ) -> None:
        """Records the line's result and its duration."""
        if answer is not None:
            self._note_output(answer)
            await self._live.evidence.flush()
        await self._recorder.record(
            self._live.session,
            EventDraft(
                "pty.result",
                actor=self._sent.principal.name,
                args={"tool": self._sent.tool},
                result={"status": status, "session_state": self._live.situation.session_state},
                made=Made(
                    {"terminal_id": self._live.id},
                    {
                        "interaction_count": self._live.interactions,
                        "output_bytes": answer.raw_bytes if answer else 0,
                        "output_hash": answer.raw_hash if answer else None,
                        "truncated": answer.output.truncated if answer else False,
                    },
                ),
                error=error,
                duration_ms=duration_ms,
            ),
        )

    async def _note(self, decision: str, verdict: LineVerdict) -> None:
        fields = transcript.asked(self._sent.text, decision, verdict.scope, verdict.command)
        self._live.evidence.note("INPUT", fields)
        await self._live.evidence.flush()

    def _note_output(self, answer: Answer) -> None:
        size = transcript.output_size(len(answer.output.text.splitlines()), answer.raw_bytes)
        shown = self._live.terminal.shown
        if answer.wait is Wait.PROMPT and shown is not None:
            self._live.evidence.note("OUTPUT", [size, transcript.shown(*shown)])
        else:
            self._live.evidence.note("OUTPUT", [size, f"status={answer.wait}"])

    def _described(self, verdict: LineVerdict) -> dict[str, Any]:
        situation = self._live.situation
        return {
            "tool": self._sent.tool,
            "command": self._sent.text,
            "governing": verdict.command,
            "matched": list(verdict.matched),
            "scope": verdict.scope,
            "session_state": situation.session_state,
            "interaction_count": situation.interaction_count,
        }

    def _made(self, approval: LineApproval | None) -> Made:
        text = self._live.session.secrets.cut(self._sent.text)
        return Made(
            {
                "terminal_id": self._live.id,
                # A long text is shortened in the record; the digest covers all of it.
                "command_sha256": hashlib.sha256(
                    text.encode("utf-8", "backslashreplace")
                ).hexdigest(),
                "approval": approval.approval.id if approval else None,
            }
        )
