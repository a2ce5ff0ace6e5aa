"""The terminals of all sessions: opened, used, ended, and readable afterwards."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from pathlib import Path

from orchestrator.ground.errors import PaddockError, SandboxUnavailableError
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.link.messages import AgentEvent, Hello
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.work.commands.execution import NO_ROOM_REASON
from orchestrator.work.terminals import terminal_record
from orchestrator.work.terminals.evidence import disk_threads
from orchestrator.work.terminals.evidence_files import EvidenceError
from orchestrator.work.terminals.interaction import Interaction
from orchestrator.work.terminals.line_leases import LineLeases
from orchestrator.work.terminals.line_record import Exchange
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.pages import parse_exit
from orchestrator.work.terminals.records import Records
from orchestrator.work.terminals.shell import Shell
from orchestrator.work.terminals.spec import Ask, Decide, SentLine, TerminalSpec
from orchestrator.work.terminals.terminal_ends import OnEnd, TerminalEnds
from orchestrator.work.terminals.terminal_record import TerminalRecord
from orchestrator.work.terminals.terminal_starts import TerminalStarts
from paddock.contract.words import Kind

log = logging.getLogger(__name__)

RESTARTED = "control_plane_restarted"
STOPPED = "control_plane_stopped"
# A program gets 2 s between TERM and KILL; then its end must be recorded.
_END_SECONDS = 10.0
_GONE_SECONDS = 5.0


class Terminals:
    """Every terminal of this instance. Callers learn only what is durable.

    Calls continue if their caller is cancelled, so a client that disconnects leaves no terminal in
    the middle of a line.
    """

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        budgets: Budgets,
        state_dir: Path,
        on_end: OnEnd,
    ) -> None:
        """`on_end` is called for every end before waiting callers learn of it."""
        self._database = database
        self._recorder = recorder
        self._directory = state_dir / "evidence"
        self._live: dict[str, OpenTerminal] = {}
        # Terminals of an earlier control plane that are still running, by session key.
        self._strays: dict[str, frozenset[str]] = {}
        threads = disk_threads()
        self.records = Records(database, self._directory, self._live, threads)
        self._ends = TerminalEnds(database, recorder, self._live, on_end, threads)
        self._starts = TerminalStarts(
            recorder, budgets, self._directory, self._live, self._ends, self._give_up, threads
        )
        self._tasks = TaskScope("the end of a terminal")
        self._leases = LineLeases(budgets, self.records, self._ends, self._give_up, self._tasks)

    # Opening.

    async def open(
        self, principal: Principal, session: Session, spec: TerminalSpec
    ) -> TerminalRecord:
        """A terminal whose tool shows its prompt.

        Raises: ConflictError with `reason` if the tool did not reach its prompt, BusyError if too
        much runs in the session, BudgetExceededError if the budget is used up,
        AuditUnavailableError, SandboxUnavailableError, and the errors of `Session.check_open`.
        """
        sandbox = session.check_open()
        starting = self._starts.run(principal, session, sandbox, spec)
        return (await self._tasks.shield(starting)).view()

    async def open_shell(
        self, principal: Principal, session: Session, spec: TerminalSpec, idle_seconds: float
    ) -> OpenTerminal:
        """A shell, which is read until it ends or was not used for so long.

        Raises: the errors of `open`.
        """
        sandbox = session.check_open()
        starting = self._starts.run(principal, session, sandbox, spec)
        return await self._tasks.shield(self._tended(starting, idle_seconds))

    async def _tended(self, starting: Awaitable[OpenTerminal], idle_seconds: float) -> OpenTerminal:
        """The shell that is being started, which is read from then on."""
        live = await starting
        if isinstance(live.terminal, Shell):
            self._tasks.spawn(self._tend(live, live.terminal, idle_seconds))
        return live

    async def _tend(self, live: OpenTerminal, shell: Shell, idle_seconds: float) -> None:
        """Reads a shell to its end, and records that."""
        try:
            await shell.follow(idle_seconds)
        except TimeoutError:
            await self._give_up(live, "idle_timeout")
        except EvidenceError:
            await self._give_up(live, "evidence_unavailable")
        except PaddockError as error:
            log.info("shell %s is given up: %s", live.id, error.detail)
            await self._give_up(live, "sandbox_unavailable")
        else:
            await self._ends.run(live)

    # Interacting.

    async def interact(self, sent: SentLine, decide: Decide, ask: Ask | None = None) -> Exchange:
        """Sends one line, if `decide` allows it, and returns its result.

        If the line needs an approval, `ask` requests it; until it is approved, the line has the
        status `pending` and is not sent. Raises: the errors of `Interaction.run`, and
        NotFoundError.
        """
        live = await self.records.running(sent.session, sent.terminal_id)
        return await Interaction(self._recorder, self._leases, live, sent, decide, ask).run()

    async def spec(self, session: Session, terminal_id: str) -> TerminalSpec:
        """A live terminal's specification. Raises: NotFoundError, ConflictError if it has ended."""
        return (await self.records.running(session, terminal_id)).terminal.spec

    @property
    def all_live(self) -> list[OpenTerminal]:
        """The terminals of all sessions that have not ended."""
        return list(self._live.values())

    def live(self, session: Session) -> list[OpenTerminal]:
        """The session's terminals that have not ended."""
        return [live for live in self._live.values() if live.session is session]

    # Ending.

    async def close(
        self, session: Session, terminal_id: str, reason: str = "closed"
    ) -> TerminalRecord:
        """Ends a terminal and its program; returns its record. An ended terminal is not changed.

        Raises: NotFoundError, SandboxUnavailableError if its end is not reported.
        """
        live = self._live.get(terminal_id)
        if live is not None and live.session is session:
            session.check_open()
            await self._tasks.shield(self._end(live, reason))
        return await self.records.get(session.key, terminal_id)

    def end(self, live: OpenTerminal, reason: str) -> None:
        """Begins to end a terminal whose caller does not wait for that."""
        if live.reason is None:
            live.reason = reason
            self._tasks.spawn(self._give_up(live, reason))

    async def close_all(self, session: Session, reason: str) -> None:
        """Ends every terminal of the session."""
        await self._tasks.shield(self._end_all(self.live(session), reason))

    def on_full(self, session: Session) -> None:
        """Ends terminals if nothing more may be recorded, unless the budget ends the session."""
        if session.budget.left(Kind.AUDIT_BYTES) == 0:
            return
        for live in self.live(session):
            self.end(live, NO_ROOM_REASON)

    async def _end_all(self, terminals: Iterable[OpenTerminal], reason: str) -> None:
        ends = (self._end(live, reason) for live in terminals)
        for failure in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(failure, PaddockError):
                log.warning("a terminal does not end: %s", failure.detail)
            elif failure is not None:
                raise failure

    async def _end(self, live: OpenTerminal, reason: str) -> None:
        """Has the agent end it, and waits until that is recorded."""
        live.reason = live.reason or reason
        try:
            async with asyncio.timeout(_END_SECONDS):
                await live.terminal.end(live.reason)
                await live.closed.wait()
        except TimeoutError:
            detail = f"the end of terminal {live.id} is not known yet"
            raise SandboxUnavailableError(detail) from None

    async def _give_up(self, live: OpenTerminal, reason: str) -> None:
        """Ends it, and records its end even if the agent does not answer."""
        live.reason = live.reason or reason
        with suppress(PaddockError):
            await self._end(live, reason)
        await self._ends.run(live)

    # Called for others' messages.

    def on_exit(self, session: Session, event: AgentEvent, _recorded: Recorded) -> None:
        """Finishes a terminal whose program's end is recorded."""
        live = self._live.get(str(event.args.get("terminal_id")))
        if live is not None and live.session is session:
            with suppress(PaddockError):
                live.exit = parse_exit(event.result)
            self._ends.start(live)

    def on_hello(self, session: Session, hello: Hello) -> None:
        """Handles a connected agent: terminals of an earlier control plane are abandoned."""
        strays = hello.terminals - self._live.keys()
        if strays:
            self._strays[session.key] = strays
            self._end_strays(session)

    def _end_strays(self, session: Session) -> None:
        """Ends strays once the session is adopted, which can be after its agent's hello."""
        if session.sandbox is not None:
            for terminal_id in self._strays.pop(session.key, ()):
                self._tasks.spawn(self._end_stray(session.sandbox, terminal_id))

    async def _end_stray(self, sandbox: Sandbox, terminal_id: str) -> None:
        with suppress(PaddockError):  # its own limits end it then, or its next hello
            params = {"terminal_id": terminal_id, "reason": RESTARTED}
            await sandbox.link.request("pty.close", params)

    async def on_gone(self, sandbox: Sandbox) -> None:
        """Finishes the terminals of a sandbox that has ended and is about to be released."""
        gone = [live for live in self._live.values() if live.sandbox is sandbox]
        for live in gone:
            live.reason = live.reason or "sandbox_ended"
        ends = [self._ends.start(live) for live in gone]
        if ends:
            # Pending requests fail once the sandbox is released.
            await asyncio.wait(ends, timeout=_GONE_SECONDS)

    # Starting and stopping.

    async def recover(self, sessions: Iterable[Session]) -> int:
        """Records that the terminals of a killed control plane have ended.

        Call it before any is opened. Returns their number.
        """
        by_key = {session.key: session for session in sessions}
        left = await self._database.read(terminal_record.not_ended)
        for session in by_key.values():
            self._end_strays(session)
        for row in left:
            directory = self._directory / row.session_key / row.record.id
            await self._ends.record_abandoned(
                by_key.get(row.session_key), row, directory, RESTARTED
            )
        return len(left)

    async def shut_down(self) -> None:
        """Ends every terminal: none outlives its control plane."""
        await self._end_all(list(self._live.values()), STOPPED)
        for live in list(self._live.values()):
            await self._ends.run(live)
        await self._tasks.close()
        await self._ends.drain()
