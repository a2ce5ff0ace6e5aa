"""A terminal that has not ended: its driver, its session, its evidence, and what it is doing."""

import asyncio
from dataclasses import dataclass, field, replace

from orchestrator.access.keys import Principal
from orchestrator.errors import BusyError, ConflictError
from orchestrator.sandboxes.sandbox import Sandbox
from orchestrator.sessions.session import Session
from orchestrator.terminals.evidence import Digests, Evidence
from orchestrator.terminals.pages import Exit
from orchestrator.terminals.record import TerminalRecord
from orchestrator.terminals.spec import Situation
from orchestrator.terminals.terminal import Status, Terminal


@dataclass(slots=True, eq=False)
class Live:
    """One terminal. `record` is what was stored when it was opened; at last, of its end."""

    session: Session
    sandbox: Sandbox
    opener: Principal
    terminal: Terminal
    evidence: Evidence
    record: TerminalRecord
    status: Status = Status.SPAWNING
    interactions: int = 0
    # Why it is ended, before the agent says so.
    reason: str | None = None
    # What the agent reported at its end.
    exit: Exit | None = None
    # Held while the terminal is asked for something: its end waits for the answer.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    finishing: asyncio.Task[None] | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """The terminal's id."""
        return self.terminal.id

    @property
    def situation(self) -> Situation:
        """What decisions depend on."""
        shown = self.terminal.shown
        state = shown.state if shown else ""
        return Situation(state, self.interactions, self.terminal.line_bytes)

    def take(self) -> Status:
        """One line at a time; what the status was. Raises: BusyError, ConflictError at its end."""
        if self.finishing is not None or self.reason is not None:
            raise ConflictError("the terminal has ended: open another one", pty=self.id)
        if self.status not in (Status.READY, Status.TIMED_OUT):
            raise BusyError("the terminal is busy: one interaction at a time", pty=self.id)
        before, self.status = self.status, Status.BUSY
        return before

    def view(self) -> TerminalRecord:
        """The terminal as it is now."""
        shown = self.terminal.shown
        return replace(
            self.record,
            status=self.status,
            session_state=shown.state if shown else None,
            prompt=self.session.secrets.cut(shown.prompt.rstrip()) if shown else None,
            interaction_count=self.interactions,
        )

    def final(self, reason: str, ended_at: str, digests: Digests | None) -> TerminalRecord:
        """The terminal after its end."""
        ending = self.exit or self.terminal.exit
        return replace(
            self.view(),
            status=Status.TERMINATED,
            ended_at=ended_at,
            reason=reason,
            exit_code=ending.exit_code if ending else None,
            evidence=digests,
        )
