"""The commands of kept shells: counted, recorded, run, answered, stopped, and recorded again."""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from orchestrator.ground.errors import (
    BusyError,
    ConflictError,
    PaddockError,
)
from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.work.shells.kept_shell import KeptShell, ShellRun, Why
from orchestrator.work.shells.run_output import Printed
from orchestrator.work.terminals import transcript
from orchestrator.work.terminals.evidence_files import EvidenceError
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.terminals import Terminals
from paddock.contract.words import Status

TIMEOUT, CLIENT_GONE = "timeout", "client_gone"
# How long a command has to end after it was interrupted, and after its foreground was killed.
_GRACE_SECONDS = (1.0, 5.0)
# Less than the integers that JSON keeps exactly.
_NUMBER_BITS = 52


class Until(NamedTuple):
    """When a command is answered: it has finished, or what is here.

    `seconds`: after this time; then it is stopped, unless `goes_on`. `expect`: one of these texts
    is printed; None: a program waits for input.
    """

    seconds: float
    expect: Sequence[str] | None = None
    goes_on: bool = False


class RunAnswer(NamedTuple):
    """What has come of a command so far.

    `running`: it still runs, and may be given input. `exit_code` is set once it has ended;
    `ended` says why the shell has ended, if it has.
    """

    shell: KeptShell
    why: Why
    printed: Printed
    matched: str | None
    duration_ms: int
    exit_code: int | None
    error: str | None
    running: bool
    ended: str | None


class ShellRuns:
    """Runs commands in kept shells: one at a time in each."""

    def __init__(self, terminals: Terminals, recorder: Recorder, budgets: Budgets) -> None:
        self._terminals = terminals
        self._recorder = recorder
        self._budgets = budgets
        self._tasks = TaskScope("a command of a kept shell")

    async def close(self) -> None:
        """Waits until the ends of all commands are on record; their shells must have ended."""
        await self._tasks.drain()

    async def started(self, live: OpenTerminal, shell: KeptShell, seconds: float) -> bool:
        """Whether the shell has started in that time."""
        run = shell.run
        if run is None:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await shell.outcome(run, ()) is Why.FINISHED
        return False

    async def run(
        self,
        principal: Principal,
        live: OpenTerminal,
        shell: KeptShell,
        command: str,
        until: Until,
    ) -> RunAnswer:
        """Runs a command and returns its answer; a caller that leaves stops it.

        Raises: BusyError while another one runs, BudgetExceededError, AuditUnavailableError,
        SandboxUnavailableError, EvidenceError.
        """
        _check_free(shell)
        async with shell.attended:
            if shell.run is not None:
                raise BusyError(_BUSY, pty=live.id)
            starting = self._start(principal, live, shell, command, until)
            run = await self._tasks.shield(starting, lambda run: self._leave(live, shell, run))
            return await self._answered(live, shell, run, until)

    async def input(
        self,
        principal: Principal,
        live: OpenTerminal,
        shell: KeptShell,
        text: str,
        until: Until,
    ) -> RunAnswer:
        """Types into the program that runs; an empty text only waits for the next answer.

        Raises: ConflictError if no command runs, BusyError while another caller waits for it, and
        the errors of `Shell.write`.
        """
        if shell.run is None:
            raise ConflictError("no command runs in this shell: run one", pty=live.id)
        _check_free(shell)
        async with shell.attended:
            run = shell.run
            if run is None:
                raise ConflictError("the command has ended: run another one", pty=live.id)
            shell.printed.look_for(until.expect or ())
            if text:
                await self._tasks.shield(self._type(principal, live, shell, text))
            return await self._answered(live, shell, run, until)

    # The way of a command.

    async def _start(
        self,
        principal: Principal,
        live: OpenTerminal,
        shell: KeptShell,
        command: str,
        until: Until,
    ) -> ShellRun:
        counted = await self._budgets.admit(principal, live.session)
        run = ShellRun(1 + secrets.randbits(_NUMBER_BITS), command)
        try:
            await self._record_start(principal, live, shell, run, counted)
        except BaseException:
            self._budgets.withdraw(live.session)
            raise
        shell.printed.look_for(until.expect or ())
        try:
            await shell.start(run)
        except PaddockError as error:
            await self._record_end(live, shell, run, error.detail)
            raise
        self._tasks.spawn(self._attend(live, shell, run))
        return run

    async def _type(
        self, principal: Principal, live: OpenTerminal, shell: KeptShell, text: str
    ) -> None:
        live.evidence.note("INPUT", [transcript.quoted(live.session.secrets.cut(text))])
        draft = EventDraft(
            "shell.input",
            actor=principal.name,
            decision="allow",
            args={"shell": shell.name, "text": text},
            made=Made({"terminal_id": live.id}),
        )
        with _Kept(self._terminals, live):
            await live.evidence.flush()
            await self._recorder.record(live.session, draft)
            await shell.write(text.encode())

    async def _attend(self, live: OpenTerminal, shell: KeptShell, run: ShellRun) -> None:
        """Records a command's end, whoever waits for it."""
        try:
            await shell.ended(run)
            await self._record_end(live, shell, run, None)
        finally:
            run.recorded.set()

    async def _answered(
        self,
        live: OpenTerminal,
        shell: KeptShell,
        run: ShellRun,
        until: Until,
    ) -> RunAnswer:
        try:
            with live.session.busy_terminal():
                why = await self._outcome(live, shell, run, until)
                if run.state is not None or why is Why.ENDED:
                    await run.recorded.wait()
                if why is Why.ENDED:
                    await live.closed.wait()
        except asyncio.CancelledError:
            self._leave(live, shell, run)
            raise
        if why is Why.ENDED and live.session.budget.exceeded is not None:
            raise await self._budgets.refusal(live.session)
        return _answer(live, shell, run, why)

    async def _outcome(
        self, live: OpenTerminal, shell: KeptShell, run: ShellRun, until: Until
    ) -> Why:
        with suppress(TimeoutError):
            async with asyncio.timeout(until.seconds):
                return await shell.outcome(run, until.expect)
        # In a paused session it stands still, and goes on with the session.
        if until.goes_on or live.session.status is Status.PAUSED:
            return Why.TIMED_OUT
        await self._stop(live, shell, run, TIMEOUT)
        return Why.TIMED_OUT

    # Stopping.

    def _leave(self, live: OpenTerminal, shell: KeptShell, run: ShellRun) -> None:
        self._tasks.spawn(self._stop(live, shell, run, CLIENT_GONE))

    async def _stop(self, live: OpenTerminal, shell: KeptShell, run: ShellRun, reason: str) -> None:
        """Interrupts a command, then kills its foreground, then ends the shell."""
        for kill, seconds in zip((False, True), _GRACE_SECONDS, strict=True):
            # It may have just ended, or its agent does not answer. Where only the shell is left,
            # it may be about to tell of the end.
            with suppress(PaddockError):
                await shell.interrupt(run, kill=kill)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await shell.ended(run)
                    return
        self._terminals.end(live, reason)
        await live.closed.wait()

    # Records.

    async def _record_start(
        self,
        principal: Principal,
        live: OpenTerminal,
        shell: KeptShell,
        run: ShellRun,
        counted: Effect,
    ) -> None:
        cut = live.session.secrets.cut(run.command)
        live.evidence.note("RUN", [transcript.quoted(cut)])
        digest = hashlib.sha256(cut.encode("utf-8", "backslashreplace")).hexdigest()
        with _Kept(self._terminals, live):
            await shell.record_command(run.command)
        await self._recorder.record(
            live.session,
            EventDraft(
                "shell.run",
                actor=principal.name,
                decision="allow",
                args={"shell": shell.name, "command": run.command},
                made=Made({"terminal_id": live.id, "command_sha256": digest}),
            ),
            effect=counted,
        )

    async def _record_end(
        self, live: OpenTerminal, shell: KeptShell, run: ShellRun, error: str | None
    ) -> None:
        state = run.state
        await self._recorder.record(
            live.session,
            EventDraft(
                "shell.result",
                actor="system",
                args={"shell": shell.name},
                result={
                    "exit_code": None if state is None else state.exit_code,
                    "syntax_error": bool(state and state.syntax_error),
                    "cwd": None if state is None else state.cwd,
                },
                made=Made({"terminal_id": live.id}, {"output_bytes": run.output_bytes}),
                error=error or ("the shell has ended" if state is None else None),
                duration_ms=run.duration_ms,
                stop=True,
            ),
        )


class _Kept:
    """Ends a shell whose evidence can't be kept, so that nothing happens unrecorded."""

    def __init__(self, terminals: Terminals, live: OpenTerminal) -> None:
        self._terminals = terminals
        self._live = live

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, EvidenceError):
            self._terminals.end(self._live, "evidence_unavailable")


_BUSY = "a command runs in this shell: give it input, interrupt it, or wait"


def _check_free(shell: KeptShell) -> None:
    """Raises: BusyError while another caller waits for the shell's command."""
    if shell.attended.locked():
        raise BusyError(_BUSY, pty=shell.id)


def _answer(live: OpenTerminal, shell: KeptShell, run: ShellRun, why: Why) -> RunAnswer:
    state, over = run.state, live.closed.is_set()
    return RunAnswer(
        shell,
        why,
        shell.printed.take(),
        shell.printed.found if why is Why.MATCHED else None,
        run.duration_ms,
        live.record.exit_code if state is None and over else state and state.exit_code,
        state.syntax_error if state is not None and state.syntax_error else None,
        state is None and not over,
        live.record.reason if over else None,
    )
