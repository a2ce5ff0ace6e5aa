"""One interaction: decided, recorded, written, answered, recorded."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.access.keys import Principal
from orchestrator.audit.recorder import Made, Recorder
from orchestrator.errors import (
    BusyError,
    ConflictError,
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
)
from orchestrator.sessions import session_rows
from orchestrator.terminals import late, record, transcript
from orchestrator.terminals.evidence import EvidenceError
from orchestrator.terminals.live import Live
from orchestrator.terminals.spec import Copies, Decide, LineApproval, LineVerdict
from orchestrator.terminals.terminal import Answer, Status, Wait

MAX_INTERACTIONS = "max-interactions"
_LONGEST_NAME = 256


class Interaction:
    """A line for a live terminal, which the caller has taken and whose lock it holds.

    `goes` says whether the line is written, `ends` why the terminal must be ended afterwards,
    if it must.
    """

    def __init__(
        self,
        recorder: Recorder,
        live: Live,
        principal: Principal,
        tool: str,
        text: str,
        decide: Decide,
        approval: LineApproval | None,
    ) -> None:
        self._recorder = recorder
        self._live = live
        self._terminal = live.terminal
        self.principal = principal
        self._tool = tool[:_LONGEST_NAME]
        self._text = text
        self._decide = decide
        self._approval = approval
        self._started = time.time()
        self._written = False
        self.goes = False
        self.ends: str | None = None

    async def run(self, before: Status) -> dict[str, Any]:
        """The interaction's envelope; `before` is the terminal's status until now.

        Raises: PermissionDeniedError with the rule, BusyError while the answer to an earlier
        line is not complete, ConflictError when the tool has ended; AuditUnavailableError and
        SandboxUnavailableError.
        """
        live = self._live
        after = before
        try:
            verdict = await self._decided()
            goes = self._goes(verdict)
            after = Status.READY if goes else before
            with self._approved(verdict):
                await self._record_decision(verdict)
                self.goes = goes
                if verdict.decision == "deny":
                    raise PermissionDeniedError(verdict.message, rule=verdict.rule, pty=live.id)
                if not goes:
                    return self._envelope("pending", error=verdict.message)
                after = Status.TIMED_OUT  # until its prompt comes
                answer = await self._write(verdict)
            after = Status.TIMED_OUT if answer.wait is Wait.TIMEOUT else Status.READY
            return await self._answered(answer)
        except _NotAtPromptError:
            after = Status.TIMED_OUT
            raise
        except _NotWrittenError as error:
            after = Status.READY
            raise error.cause from None
        except EvidenceError:
            self.ends = "evidence_unavailable"
            raise
        finally:
            live.status = after

    # Deciding

    def _goes(self, verdict: LineVerdict) -> bool:
        """Whether the line is written."""
        approved = verdict.decision == "pending" and self._approval is not None
        return verdict.decision == "allow" or approved

    @contextmanager
    def _approved(self, verdict: LineVerdict) -> Iterator[None]:
        """Within it the approval is in use; only a line that may be written uses it up.

        Raises: ConflictError when another call has written the line.
        """
        approval = self._approval if verdict.decision == "pending" else None
        if approval is None:
            yield
            return
        approval.use()
        try:
            yield
        finally:
            approval.settle(self._written)

    async def _decided(self) -> LineVerdict:
        """The decision on the line at the prompt that the tool shows now."""
        situation = self._live.situation
        verdict = self._decide(situation)
        if verdict.decision == "deny":
            return verdict
        if self._live.interactions >= self._terminal.spec.max_interactions:
            await self._refuse_more(verdict)
        if not self._goes(verdict):
            return verdict
        at_prompt = await self._terminal.synchronise()
        await late.record(self._recorder, self._live)
        if self._terminal.exit is not None:
            raise ConflictError("the tool has ended: open another terminal", pty=self._live.id)
        if not at_prompt:
            raise _NotAtPromptError(
                "the tool has not come back to its prompt: try again later, or close the terminal",
                pty=self._live.id,
            )
        if self._live.situation != situation:
            verdict = self._decide(self._live.situation)
        return verdict

    async def _refuse_more(self, verdict: LineVerdict) -> None:
        self.ends = "max_interactions"
        most = self._terminal.spec.max_interactions
        message = f"the terminal had its {most} interactions, and is ended: open another one"
        fields = transcript.asked(self._text, "deny", verdict.scope, verdict.command)
        self._live.evidence.note("INPUT", fields)
        await self._live.evidence.flush()
        await self._record("deny", MAX_INTERACTIONS, verdict, message)
        raise PermissionDeniedError(message, rule=MAX_INTERACTIONS, pty=self._live.id)

    async def _record_decision(self, verdict: LineVerdict) -> None:
        """Transcript and audit event, both before a byte reaches the tool."""
        decision, rule = verdict.decision, verdict.rule
        if decision == "pending" and self._approval is not None:
            decision = "allow"
            self._live.evidence.note("APPROVAL", transcript.approved(self._approval.human))
        fields = transcript.asked(self._text, decision, verdict.scope, verdict.command)
        self._live.evidence.note("INPUT", fields)
        await self._live.evidence.flush()
        await self._record(decision, rule, verdict, verdict.message if decision == "deny" else None)

    async def _record(
        self, decision: str, rule: str, verdict: LineVerdict, error: str | None
    ) -> None:
        session, actor = self._live.session, self.principal.name
        args = self._described(verdict)
        if decision == "deny":
            members: dict[str, Any] = {"rule": rule, "args": args, "error": error or ""}
            await self._recorder.refuse(session, "pty.interaction", actor=actor, **members)
            return
        await self._recorder.record(
            session,
            "pty.interaction",
            actor=actor,
            decision=decision,
            rule=rule,
            args=args,
            error=error,
            # A line that is written was counted.
            effect=session_rows.with_budget(session) if decision == "allow" else None,
        )

    def _described(self, verdict: LineVerdict) -> dict[str, Any]:
        live, situation = self._live, self._live.situation
        return {
            "terminal_id": live.id,
            "tool": self._tool,
            "command": self._text,
            # A long text is cut on record; this is of all of it.
            "command_sha256": hashlib.sha256(
                live.session.secrets.cut(self._text).encode("utf-8", "backslashreplace")
            ).hexdigest(),
            "governing": verdict.command,
            "matched": list(verdict.matched),
            "scope": verdict.scope,
            "session_state": situation.session_state,
            "interaction_count": situation.interaction_count,
            "approval": self._approval.id if self._approval else None,
        }

    # Writing and reading

    async def _write(self, verdict: LineVerdict) -> Answer:
        command = self._tool.partition(".")[2]
        try:
            if self._live.session.check_open() is not self._live.sandbox:
                raise SandboxUnavailableError("the session's sandbox was replaced")
            copies = self._approval.copies if self._approval is not None else None
            await self._terminal.send(command, *(copies or Copies(self._text, {})))
            self._written = True
            self._live.interactions += 1
            return await self._terminal.answer()
        except SandboxUnavailableError as error:
            # It may have been written: what comes is not taken for anything else.
            self._written = True
            await self._record_result("error", None, error.detail)
            raise
        except EvidenceError:
            raise
        except PermissionDeniedError as error:
            # The agent holds to what it knows now, whatever was decided before.
            await self._record("deny", str(error.fields["rule"]), verdict, error.detail)
            raise _NotWrittenError(error) from None
        except PaddockError as error:
            await self._record_result("error", None, error.detail)
            raise _NotWrittenError(error) from None

    async def _answered(self, answer: Answer) -> dict[str, Any]:
        await late.record(self._recorder, self._live)
        live, output = self._live, answer.output
        situation = live.situation
        prompt = self._terminal.shown.prompt if self._terminal.shown else ""
        at_prompt = answer.wait is Wait.PROMPT
        results = record.results(
            prompt if at_prompt else "", output.text, situation.session_state, live.interactions
        )
        status, error = {
            Wait.PROMPT: ("success", None),
            Wait.TIMEOUT: ("timeout", "the tool did not come back to its prompt in time"),
            Wait.ENDED: ("error", "the tool has ended"),
        }[answer.wait]
        if at_prompt:
            error = self._terminal.spec.result_problem(results)
        if at_prompt and error is not None:
            status = "error"
        self._note_output(answer)
        await self._live.evidence.flush()
        await self._record_result(status, answer, error)
        withheld = at_prompt and error is not None
        return self._envelope(status, answer, error, None if withheld else results)

    def _note_output(self, answer: Answer) -> None:
        said = transcript.said(len(answer.output.text.splitlines()), answer.raw_bytes)
        shown = self._terminal.shown
        if answer.wait is Wait.PROMPT and shown is not None:
            self._live.evidence.note("OUTPUT", [said, transcript.shown(*shown)])
        else:
            self._live.evidence.note("OUTPUT", [said, f"status={answer.wait}"])

    async def _record_result(self, status: str, answer: Answer | None, error: str | None) -> None:
        await self._recorder.record(
            self._live.session,
            "pty.result",
            actor=self.principal.name,
            args={"tool": self._tool},
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
            duration_ms=max(0, int((time.time() - self._started) * 1000)),
        )

    def _envelope(
        self,
        status: str,
        answer: Answer | None = None,
        error: str | None = None,
        results: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        ending = self._terminal.exit
        exit_code = 0 if status == "success" else record.NO_EXIT_CODE
        if ending is not None and ending.exit_code is not None:
            exit_code = ending.exit_code
        return record.envelope(
            status=status,
            tool=self._tool,
            command=self._text,
            session_id=self._live.session.id,
            terminal_id=self._live.id,
            started=self._started,
            exit_code=exit_code,
            output_hash=answer.raw_hash if answer else None,
            output_bytes=answer.raw_bytes if answer else 0,
            truncated=answer.output.truncated if answer else False,
            error=error,
            results=results,
        )


class _NotAtPromptError(BusyError):
    """The answer to an earlier line is not complete."""


class _NotWrittenError(Exception):
    """The agent refused the line; `cause` is for the client."""

    def __init__(self, cause: PaddockError) -> None:
        super().__init__(cause.detail)
        self.cause = cause
