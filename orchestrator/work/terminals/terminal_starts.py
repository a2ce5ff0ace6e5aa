"""Opens terminals: counted, recorded and started; tools are then at their first prompt."""

import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from orchestrator.ground.errors import (
    BudgetExceededError,
    ConflictError,
    PaddockError,
    SandboxUnavailableError,
    naming,
)
from orchestrator.ground.events import EventDraft, Made, now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.effect import both
from orchestrator.ground.threads import Threads
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.secret_cutting import SecretCutting
from orchestrator.rules.access.keys import Principal
from orchestrator.state import session_rows
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.work.shells.kept_shell import KeptShell
from orchestrator.work.shells.run_output import RunOutput
from orchestrator.work.terminals import terminal_record, transcript
from orchestrator.work.terminals.asciicast import Recording, shown_columns
from orchestrator.work.terminals.evidence import Evidence
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.redacted_output import RedactedOutput
from orchestrator.work.terminals.shell import Shell
from orchestrator.work.terminals.spec import TerminalSpec
from orchestrator.work.terminals.terminal import Status, Terminal, Wait
from orchestrator.work.terminals.terminal_ends import TerminalEnds
from orchestrator.work.terminals.terminal_record import TerminalRecord
from orchestrator.work.terminals.viewers import Size, Viewers
from paddock.contract.words import Status as SessionStatus
from sandbox_agent.decide.protocol import BUDGET_REASON

# Characters of the output that a tool printed instead of its prompt.
_MOST_PRINTED = 2000


class TerminalStarts:
    """Opens terminals; `give_up` ends one and ensures that its end is recorded."""

    def __init__(
        self,
        recorder: Recorder,
        budgets: Budgets,
        directory: Path,
        live: dict[str, OpenTerminal],
        ends: TerminalEnds,
        give_up: Callable[[OpenTerminal, str], Awaitable[None]],
        threads: Threads,
    ) -> None:
        self._recorder = recorder
        self._budgets = budgets
        self._directory = directory
        self._live = live
        self._ends = ends
        self._give_up = give_up
        self._threads = threads
        # No limit: each terminal has one piece at a time, because it reads in order.
        self._cutting = SecretCutting("pieces of tools' output", sys.maxsize)

    async def run(
        self, principal: Principal, session: Session, sandbox: Sandbox, spec: TerminalSpec
    ) -> OpenTerminal:
        """A terminal whose tool shows its prompt, or whose shell has started.

        Raises: the errors of `Terminals.open`.
        """
        session.check_room()
        terminal_id = f"pty-{secrets.token_hex(8)}"
        session.terminals.add(terminal_id)
        try:
            await self._budgets.admit(principal, session)
            FaultPoint.TERMINAL_COUNTED.reached()
            try:
                live = await self._make(principal, session, sandbox, spec, terminal_id)
                await self._record(live)
            except BaseException:
                self._budgets.withdraw(session)
                raise
        except BaseException:
            session.terminals.discard(terminal_id)
            raise
        with session.busy_terminal(), naming(pty=terminal_id):
            await self._start(live)
        return live

    async def _make(
        self,
        principal: Principal,
        session: Session,
        sandbox: Sandbox,
        spec: TerminalSpec,
        terminal_id: str,
    ) -> OpenTerminal:
        secrets = session.secrets
        directory = self._directory / session.key / terminal_id
        terminal_type = spec.env.get("TERM", "dumb")
        recording = Recording(spec.columns, spec.rows, terminal_type) if spec.recorded else None
        evidence = await Evidence.open(
            lambda: Evidence(
                directory,
                lambda: secrets.redactor,
                lambda size, what: self._recorder.count(session, size, what),
                capture=spec.capture,
                recording=recording,
                name=spec.evidence_name,
                threads=self._threads,
            ),
            self._threads,
        )

        def redacted(keep: Callable[[bytes], None]) -> RedactedOutput:
            return RedactedOutput(
                keep,
                lambda: secrets.redactor,
                lambda window: self._cutting.spans(session.key, window, sandbox.link.spend),
            )

        viewers = Viewers(Size(shown_columns(spec.columns), spec.rows))
        terminal: Terminal | Shell
        if spec.kept_cwd is not None:
            printed = RunOutput()

            def keep(data: bytes) -> None:
                printed.add(data)
                evidence.raw(_on_a_screen(data))

            terminal = KeptShell(
                *(terminal_id, spec, sandbox.link, redacted(keep), redacted(evidence.typed)),
                *(evidence.flush, lambda data: viewers.show(_on_a_screen(data))),
                watched=lambda: True,
                frozen=lambda: session.status is SessionStatus.PAUSED,
                printed=printed,
            )
        elif spec.is_shell:
            terminal = Shell(
                *(
                    terminal_id,
                    spec,
                    sandbox.link,
                    redacted(evidence.raw),
                    redacted(evidence.typed),
                ),
                *(evidence.flush, viewers.show),
                watched=lambda: len(viewers) > 0,
                frozen=lambda: session.status is SessionStatus.PAUSED,
            )
        else:
            terminal = Terminal(
                *(terminal_id, spec, sandbox.link, redacted(evidence.raw)),
                *(evidence.flush, viewers.show),
            )
        opened = TerminalRecord.opened(terminal_id, spec, now())
        return OpenTerminal(session, sandbox, principal, terminal, evidence, opened, viewers)

    async def _record(self, live: OpenTerminal) -> None:
        """Records the terminal and makes it known; if that fails, nothing of it is left."""
        session, spec = live.session, live.terminal.spec
        self._live[live.id] = live
        try:
            live.evidence.begin()
            live.evidence.note("STARTUP", transcript.startup(spec.startup_command))
            await live.evidence.flush()
            await self._recorder.record(
                session,
                EventDraft(
                    "pty.open",
                    actor=live.opener.name,
                    decision="allow",
                    args={"tool": spec.tool, "argv": list(spec.argv)},
                    made=Made({"terminal_id": live.id, "manifest_sha256": spec.manifest_sha256}),
                ),
                effect=both(
                    session_rows.with_budget(session),
                    terminal_record.opening(session.key, live.record),
                ),
            )
        except BaseException:
            del self._live[live.id]
            await live.evidence.discard()
            raise
        FaultPoint.TERMINAL_RECORDED.reached()

    async def _start(self, live: OpenTerminal) -> None:
        try:
            async with live.lock:
                if live.session.check_open() is not live.sandbox:
                    raise SandboxUnavailableError("the session's sandbox was replaced: try again")
                wait = await self._begin(live)
                FaultPoint.TERMINAL_STARTED.reached()
                if wait is None:
                    return
        except BudgetExceededError:
            await live.sandbox.link.settled()  # the agent reported it before it refused
            await self._give_up(live, BUDGET_REASON)
            raise await self._budgets.refusal(live.session) from None
        except PaddockError:
            await self._give_up(live, "failed")
            raise
        await self._no_prompt(live, wait)

    async def _begin(self, live: OpenTerminal) -> Wait | None:
        """Starts it; returns why a tool is not at its prompt, and None if all is well."""
        if isinstance(live.terminal, Shell):
            await live.terminal.begin()
        else:
            wait = await live.terminal.start()
            last = live.terminal.last_prompt
            if wait is not Wait.PROMPT or last is None:
                return wait
            live.evidence.note("READY", [transcript.shown(*last)])
            await live.evidence.flush()
        live.status = Status.READY
        return None

    async def _no_prompt(self, live: OpenTerminal, wait: Wait) -> None:
        """Ends it. Raises: ConflictError with the `reason`; BudgetExceededError for a budget."""
        seconds = live.terminal.spec.startup_timeout_seconds
        text = live.tool.printed().text
        if wait is Wait.TIMEOUT:
            await self._give_up(live, "startup_timeout")
            what = f"did not show its prompt within {seconds} s"
        else:
            await self._ends.run(live)
            what = "ended before it showed its prompt"
        if live.session.budget.exceeded is not None:
            raise await self._budgets.refusal(live.session)
        # Secrets are removed before shortening, because a secret's end alone would not be
        # recognized.
        printed = (await self._recorder.cut(live.session, text))[-_MOST_PRINTED:]
        live.session.check_live()
        raise ConflictError(
            f"the tool {what}; it said: {printed!r}", pty=live.id, reason=live.record.reason
        )


def _on_a_screen(data: bytes) -> bytes:
    """A kept shell's output as a screen shows it: the shell's terminal adds no returns."""
    return data.replace(b"\n", b"\r\n")
