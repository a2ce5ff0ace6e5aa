"""A terminal's lines: their results, and their records in transcript and audit log."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from orchestrator.ground.events import EventDraft, Made
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.tools.gates import Verdict
from orchestrator.state import session_rows
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.terminals import transcript
from orchestrator.work.terminals.evidence_files import RAW_NAME
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.spec import LineApproval, SentLine
from orchestrator.work.terminals.terminal import Answer, Wait

# The exit code of an interaction without one: it timed out, failed or was refused.
NO_EXIT_CODE = -1
# Characters recorded of each piece of unasked output; the evidence has all of it.
_MOST_UNASKED = 2000


class Results(NamedTuple):
    """The subject of a manifest's output schema; the prompt has no trailing white space."""

    prompt: str
    output: str
    session_state: str
    interaction_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A line and its result: success, timeout, error, or pending while a person decides.

    `started` is in seconds since the epoch. `output_hash` covers the raw bytes, which are in the
    terminal's `output_file`. `approval` is set if one was requested.
    """

    status: str
    scan_id: str
    tool: str
    command: str
    session_id: str
    terminal_id: str
    started: float
    duration_ms: int
    exit_code: int
    output_hash: str | None = None
    output_bytes: int = 0
    truncated: bool = False
    error: str | None = None
    results: Results | None = None
    approval: Approval | None = None

    @property
    def timestamp(self) -> str:
        """The start time, RFC 3339 UTC."""
        return datetime.fromtimestamp(self.started, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    @property
    def output_file(self) -> str:
        """The file of the raw bytes, in the evidence folder."""
        return f"{self.terminal_id}/{RAW_NAME}"


class LineRecord:
    """Records a line. Raises: AuditUnavailableError and EvidenceError, from every method."""

    def __init__(self, recorder: Recorder, live: OpenTerminal, sent: SentLine) -> None:
        self._recorder = recorder
        self._live = live
        self._sent = sent

    async def decided(self, verdict: Verdict, approval: LineApproval | None) -> None:
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
        self, rule: str, message: str, verdict: Verdict, approval: LineApproval | None
    ) -> None:
        """Records a line of which no byte reaches the tool."""
        await self._note("deny", verdict)
        await self.denied(rule, message, verdict, approval)

    async def denied(
        self, rule: str, message: str, verdict: Verdict, approval: LineApproval | None
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

    async def _note(self, decision: str, verdict: Verdict) -> None:
        fields = transcript.asked(self._sent.text, decision, verdict.scope, verdict.command)
        self._live.evidence.note("INPUT", fields)
        await self._live.evidence.flush()

    def _note_output(self, answer: Answer) -> None:
        size = transcript.output_size(len(answer.output.text.splitlines()), answer.raw_bytes)
        last = self._live.terminal.last_prompt
        if answer.wait is Wait.PROMPT and last is not None:
            self._live.evidence.note("OUTPUT", [size, transcript.shown(*last)])
        else:
            self._live.evidence.note("OUTPUT", [size, f"status={answer.wait}"])

    def _described(self, verdict: Verdict) -> dict[str, Any]:
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


async def record_unasked(recorder: Recorder, live: OpenTerminal) -> None:
    """Records output that answers no line, and takes it from the terminal.

    Raises: AuditUnavailableError, EvidenceError, the errors of `Recorder.cut`.
    """
    for late in await live.terminal.take_late():
        # Room for a whole secret beyond the kept text, because its end alone would not be
        # recognized.
        beginning = late.text[: _MOST_UNASKED + live.session.secrets.redactor.margin]
        text = (await recorder.cut(live.session, beginning))[:_MOST_UNASKED]
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
