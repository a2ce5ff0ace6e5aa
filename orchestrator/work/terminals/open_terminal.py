"""A live terminal: its driver, session, evidence, viewers and activity."""

import asyncio
from dataclasses import dataclass, field, replace

from orchestrator.ground.errors import BusyError, ConflictError, PermissionDeniedError
from orchestrator.rules.access.keys import Principal
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.work.terminals.evidence import Evidence
from orchestrator.work.terminals.evidence_files import Digests
from orchestrator.work.terminals.pages import Exit
from orchestrator.work.terminals.shell import Shell
from orchestrator.work.terminals.spec import Situation
from orchestrator.work.terminals.terminal import Status, Terminal
from orchestrator.work.terminals.terminal_record import TerminalRecord
from orchestrator.work.terminals.viewers import Viewers


@dataclass(slots=True, eq=False)
class OpenTerminal:
    """One terminal. `record` is as stored when it was opened, and finally as of its end."""

    session: Session
    sandbox: Sandbox
    opener: Principal
    terminal: Terminal | Shell
    evidence: Evidence
    record: TerminalRecord
    viewers: Viewers
    status: Status = Status.SPAWNING
    interactions: int = 0
    # Why it is being ended, before the agent reports it.
    reason: str | None = None
    # The agent's report of its end.
    exit: Exit | None = None
    # Held during a request to the terminal: its end waits for the answer.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    finishing: asyncio.Task[None] | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """The terminal's id."""
        return self.terminal.id

    @property
    def ending(self) -> Exit | None:
        """How its program has ended, as far as is known."""
        return self.exit or self.terminal.exit

    @property
    def situation(self) -> Situation:
        """The facts on which decisions depend."""
        last = self.terminal.last_prompt
        state = last.state if last else ""
        return Situation(state, self.interactions, self.terminal.line_bytes)

    @property
    def tool(self) -> Terminal:
        """The terminal of a tool. Raises: PermissionDeniedError for a shell."""
        if isinstance(self.terminal, Shell):
            raise PermissionDeniedError("this terminal takes no lines", rule="unknown-tool")
        return self.terminal

    def take(self) -> Status:
        """Takes the terminal for one line; returns its previous status.

        Raises: BusyError, ConflictError.
        """
        if self.finishing is not None or self.reason is not None:
            raise ConflictError("the terminal has ended: open another one", pty=self.id)
        if self.status not in (Status.READY, Status.TIMED_OUT):
            raise BusyError("the terminal is busy: one interaction at a time", pty=self.id)
        before, self.status = self.status, Status.BUSY
        return before

    def view(self) -> TerminalRecord:
        """The terminal as it is now."""
        last = self.terminal.last_prompt
        return replace(
            self.record,
            status=self.status,
            session_state=last.state if last else None,
            prompt=self.session.secrets.cut(last.prompt.rstrip()) if last else None,
            interaction_count=self.interactions,
        )

    def final(self, reason: str, ended_at: str, digests: Digests | None) -> TerminalRecord:
        """The terminal after its end."""
        return replace(
            self.view(),
            status=Status.TERMINATED,
            ended_at=ended_at,
            reason=reason,
            exit_code=self.ending.exit_code if self.ending else None,
            evidence=digests,
        )
