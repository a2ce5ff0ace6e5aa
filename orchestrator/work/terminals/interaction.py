"""One interaction: decided, approved if necessary, recorded, written, answered, recorded again."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NoReturn

from orchestrator.ground.errors import (
    BusyError,
    ConflictError,
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
)
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.tools.gates import Verdict
from orchestrator.work.terminals.evidence_files import EvidenceError
from orchestrator.work.terminals.line_leases import LineLease, LineLeases
from orchestrator.work.terminals.line_record import (
    NO_EXIT_CODE,
    Exchange,
    LineRecord,
    Results,
    record_unasked,
)
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.spec import (
    Ask,
    Copies,
    Decide,
    LineApproval,
    NotApprovedError,
    SentLine,
)
from orchestrator.work.terminals.terminal import Answer, Status, Wait

MAX_INTERACTIONS = "max-interactions"
_LONGEST_NAME = 256


class Interaction:
    """A line for a live terminal.

    It holds the terminal while it is decided, and while it is written and answered; without an
    approval this is one lease. While a person decides, other lines may use the terminal, so the
    line is decided again when it gets its next lease.
    """

    def __init__(
        self,
        recorder: Recorder,
        leases: LineLeases,
        live: OpenTerminal,
        sent: SentLine,
        decide: Decide,
        ask: Ask | None,
    ) -> None:
        """Without `ask`, a line that needs an approval is `pending`."""
        sent = sent._replace(tool=sent.tool[:_LONGEST_NAME])
        self._recorder = recorder
        self._leases = leases
        self._live = live
        self._terminal = live.tool
        self._sent = sent
        self._decide = decide
        self._ask = ask
        self._record = LineRecord(recorder, live, sent)
        # The decision about a line that waits for a person.
        self._pending: Verdict | None = None

    async def run(self) -> Exchange:
        """The line's result, with the `approval` if one was requested.

        Raises: PermissionDeniedError with the rule, BusyError while the answer to an earlier line
        is incomplete, ConflictError if the tool has ended; AuditUnavailableError and
        SandboxUnavailableError; the errors of `LineLeases.take` and `ask`.
        """
        attempt = partial(self._attempt, None)
        exchange = await self._leases.take(self._live, self._sent.principal, attempt)
        if self._pending is None or self._ask is None:
            return exchange
        approval = await self._asked(self._ask, self._pending)
        if approval.approval.status == "approved":
            attempt = partial(self._attempt, approval)
            exchange = await self._leases.take(self._live, self._sent.principal, attempt)
        return replace(exchange, approval=approval.approval)

    async def _attempt(self, approval: LineApproval | None, lease: LineLease) -> Exchange:
        """The result of a line, which is written if it is allowed."""
        try:
            verdict = await self._decided(lease, approval)
            goes = _goes(verdict, approval)
            lease.after = Status.READY if goes else lease.after
            with _using(approval, verdict, lease):
                if verdict.decision == "deny":
                    await self._deny(verdict.rule, verdict.message, verdict, approval)
                await self._record.decided(verdict, approval)
                lease.counts = goes
                if not goes:
                    self._pending = verdict
                    return self._exchange(lease, "pending", error=verdict.message)
                lease.after = Status.TIMED_OUT  # until its prompt comes
                answer = await self._write(lease, verdict, approval)
            lease.after = Status.TIMED_OUT if answer.wait is Wait.TIMEOUT else Status.READY
            return await self._answered(lease, answer)
        except _NotAtPromptError:
            lease.after = Status.TIMED_OUT
            raise
        except _NotWrittenError as error:
            lease.after = Status.READY
            raise error.cause from None

    # Deciding.

    async def _decided(self, lease: LineLease, approval: LineApproval | None) -> Verdict:
        """The decision about the line at the prompt that the tool shows now."""
        situation = self._live.situation
        verdict = self._decide(situation)
        if verdict.decision == "deny":
            return verdict
        most = self._terminal.spec.max_interactions
        if self._live.interactions >= most:
            lease.ends = "max_interactions"
            message = f"the terminal had its {most} interactions, and is ended: open another one"
            await self._deny(MAX_INTERACTIONS, message, verdict, approval)
        if not _goes(verdict, approval):
            return verdict
        at_prompt = await self._terminal.synchronise()
        await record_unasked(self._recorder, self._live)
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

    async def _asked(self, ask: Ask, verdict: Verdict) -> LineApproval:
        """A person's decision. Raises: PermissionDeniedError if the line was not approved."""
        try:
            return await ask(verdict)
        except NotApprovedError as error:
            message = str(error)

        async def refuse(_: LineLease) -> NoReturn:
            await self._deny(verdict.rule, message, verdict, None)

        # Another line may hold the terminal; the person's decision is already recorded.
        with suppress(BusyError):
            await self._leases.take(self._live, self._sent.principal, refuse)
        raise PermissionDeniedError(message, rule=verdict.rule, pty=self._live.id)

    async def _deny(
        self, rule: str, message: str, verdict: Verdict, approval: LineApproval | None
    ) -> NoReturn:
        await self._record.refused(rule, message, verdict, approval)
        raise PermissionDeniedError(message, rule=rule, pty=self._live.id)

    # Writing and reading.

    async def _write(
        self, lease: LineLease, verdict: Verdict, approval: LineApproval | None
    ) -> Answer:
        command = self._sent.tool.partition(".")[2]
        try:
            if self._live.session.check_open() is not self._live.sandbox:
                raise SandboxUnavailableError("the session's sandbox was replaced")
            copies = approval.copies if approval is not None else None
            line = copies or Copies(self._sent.text, {})
            await self._terminal.send(command, *line)
            lease.written = True
            self._live.interactions += 1
            self._live.evidence.typed(self._recorded(line.text))
            return await self._terminal.answer()
        except SandboxUnavailableError as error:
            # It may have been written, so the output that follows counts as its answer.
            lease.written = True
            await self._record.answered("error", None, error.detail, lease.duration_ms)
            raise
        except EvidenceError:
            raise
        except PermissionDeniedError as error:
            # The agent checks with its present knowledge, whatever was decided before.
            rule = str(error.fields["rule"])
            await self._record.denied(rule, error.detail, verdict, approval)
            raise _NotWrittenError(error) from None
        except PaddockError as error:
            await self._record.answered("error", None, error.detail, lease.duration_ms)
            raise _NotWrittenError(error) from None

    def _recorded(self, text: str) -> bytes:
        """The line as the recording has it."""
        line = self._live.session.secrets.cut(text) + self._terminal.spec.line_terminator
        return line.encode("utf-8", "backslashreplace")

    async def _answered(self, lease: LineLease, answer: Answer) -> Exchange:
        await record_unasked(self._recorder, self._live)
        live, output = self._live, answer.output
        situation = live.situation
        prompt = self._terminal.last_prompt.prompt if self._terminal.last_prompt else ""
        at_prompt = answer.wait is Wait.PROMPT
        results = Results(
            prompt.rstrip() if at_prompt else "",
            output.text,
            situation.session_state,
            live.interactions,
        )
        status, error = {
            Wait.PROMPT: ("success", None),
            Wait.TIMEOUT: ("timeout", "the tool did not come back to its prompt in time"),
            Wait.ENDED: ("error", "the tool has ended"),
        }[answer.wait]
        if at_prompt:
            error = self._terminal.spec.result_problem(results._asdict())
        if at_prompt and error is not None:
            status = "error"
        await self._record.answered(status, answer, error, lease.duration_ms)
        withheld = at_prompt and error is not None
        return self._exchange(lease, status, answer, error, None if withheld else results)

    def _exchange(
        self,
        lease: LineLease,
        status: str,
        answer: Answer | None = None,
        error: str | None = None,
        results: Results | None = None,
    ) -> Exchange:
        ending = self._terminal.exit
        exit_code = 0 if status == "success" else NO_EXIT_CODE
        if ending is not None and ending.exit_code is not None:
            exit_code = ending.exit_code
        return Exchange(
            status=status,
            scan_id=f"{int(lease.started)}-{secrets.token_hex(4)}",
            tool=self._sent.tool,
            command=self._sent.text,
            session_id=self._live.session.id,
            terminal_id=self._live.id,
            started=lease.started,
            duration_ms=lease.duration_ms,
            exit_code=exit_code,
            output_hash=answer.raw_hash if answer else None,
            output_bytes=answer.raw_bytes if answer else 0,
            truncated=answer.output.truncated if answer else False,
            error=error,
            results=results,
        )


def _goes(verdict: Verdict, approval: LineApproval | None) -> bool:
    """Whether the line is written."""
    return verdict.decision == "allow" or (verdict.decision == "pending" and approval is not None)


@contextmanager
def _using(approval: LineApproval | None, verdict: Verdict, lease: LineLease) -> Iterator[None]:
    """Uses the approval inside the block; only a line that may be written uses it up.

    Raises: ConflictError if another call has written the line.
    """
    if approval is None or verdict.decision != "pending":
        yield
        return
    approval.use()
    try:
        yield
    finally:
        approval.settle(lease.written)


class _NotAtPromptError(BusyError):
    """The answer to an earlier line is incomplete."""


class _NotWrittenError(Exception):
    """The agent refused the line; `cause` is for the client."""

    def __init__(self, cause: PaddockError) -> None:
        super().__init__(cause.detail)
        self.cause = cause
