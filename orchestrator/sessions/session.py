"""A session and its commands, as the control plane holds them in memory."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import (
    BusyError,
    ConflictError,
    InvalidTransitionError,
    SandboxUnavailableError,
    SessionTerminatedError,
)
from orchestrator.link.messages import Chunk
from orchestrator.policy.levels import Level, SessionLimits
from orchestrator.sessions.budget import Budget
from orchestrator.sessions.lifecycle import LIVE, Termination
from orchestrator.sessions.session_secrets import SessionSecrets, StoredSecrets
from orchestrator.workspace.slots import Workspace
from paddock.contract.words import Status
from sandbox_agent.protocol import MOST_STORED

if TYPE_CHECKING:
    from orchestrator.sandboxes.sandbox import Sandbox

# Ended commands that a session remembers, besides those that run.
_REMEMBERED_COMMANDS = 64
# Commands and terminals that may run at once.
MAX_RUNNING = 16
DEFAULT_ROLE = "agent"
# What clients may have open for as long as they like.
STREAM_KINDS = ("events", "output", "downloads", "uploads")


@dataclass(slots=True, eq=False)
class Command:
    """One command, without secrets in its words.

    `result` is there once `done` is; both only after the audit event is durable.
    """

    id: str
    argv: list[str]
    background: bool
    started_at: str
    done: asyncio.Future[None]
    result: dict[str, Any] | None = None
    # Whether the agent was, or may have been, told to start it.
    dispatched: bool = False
    # While it is put on record that it never ran, or that its end is lost; done afterwards.
    losing: asyncio.Future[None] | None = None
    # Whether the agent was told to end it, and which signals it was told to send.
    ending: bool = False
    signals: set[int] = field(default_factory=set)
    # What keeps evidence of it, where some is to be kept.
    keeping: asyncio.Task[None] | None = None
    # Whether somebody waits for its end and output at once, and the output that came with the end.
    collects: bool = False
    output: tuple[Chunk, ...] | None = field(default=None, repr=False)

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.result is not None

    @property
    def settled(self) -> bool:
        """Whether it has ended, and no evidence of it is still being written."""
        return self.ended and (self.keeping is None or self.keeping.done())

    @property
    def stored(self) -> bool:
        """Whether its output was long, and is stored in its sandbox."""
        return self.result is not None and self.result.get("stored_bytes", 0) > 0

    def finish(self, result: dict[str, Any]) -> None:
        """Sets the result and wakes whoever waits for it; a second result changes nothing."""
        if self.result is None:
            self.result = result
            self.done.set_result(None)


@dataclass(slots=True, eq=False)
class Session:
    """One session. `key` names it, of which there may be several of one `id`, one at a time.

    `incarnation` is its number among those, from 1.
    """

    key: str
    id: str
    owner: str
    status: Status
    level: Level
    image: str
    labels: dict[str, str]
    env: dict[str, str]
    requested_limits: dict[str, int | float]
    limits: SessionLimits
    idle_timeout: int
    # Seconds that it may exist; None: as long as it likes.
    wall_timeout: int | None
    budget: Budget
    handle_sha256: str
    workspace: Workspace
    root_dir: str
    created_at: str
    last_activity_at: str
    incarnation: int = 1
    # Those that it asked for, besides its level's.
    mounts: tuple[str, ...] = ()
    # Who policies take its agent for.
    role: str = DEFAULT_ROLE
    # The tools that it may open; None: any that its level permits.
    tools: tuple[str, ...] | None = None
    secrets: SessionSecrets = field(default_factory=lambda: SessionSecrets(StoredSecrets(), {}))
    termination: Termination | None = None
    sandbox: "Sandbox | None" = None
    # Ids of the terminals that have not ended.
    terminals: set[str] = field(default_factory=set)
    # How many of them are started, or asked for an answer, just now.
    busy_terminals: int = 0
    commands: dict[str, Command] = field(default_factory=dict)
    # Serialises everything that changes the status, the level or the sandbox.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Held while evidence of one of its commands is written.
    capturing: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Why no new work is taken although the session is active; None when it is.
    gate: str | None = None
    # Whether its last event is on its way.
    ending: bool = False
    # How many clients follow or transfer something, by STREAM_KINDS.
    streams: Counter[str] = field(default_factory=Counter)
    # Done once it has ended, and its agent and its terminals have: but for ends that could not be
    # recorded yet, nothing more will be on record of it. Its container may be there a while longer.
    over: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def __post_init__(self) -> None:
        if not self.live:
            self.over.set_result(None)

    @property
    def live(self) -> bool:
        """Whether the session has not ended."""
        return self.status in LIVE

    @property
    def running(self) -> list[Command]:
        """The commands that have not ended."""
        return [command for command in self.commands.values() if not command.ended]

    def latest(self, most: int) -> list[Command]:
        """The commands that run and the latest that ended; so many in all, unless more run."""
        ended = [command for command in self.commands.values() if command.ended]
        kept = max(0, most - len(self.running))
        wanted = {command.id for command in (*self.running, *ended[len(ended) - kept :])}
        return [command for command in self.commands.values() if command.id in wanted]

    @property
    def at_work(self) -> int:
        """How many commands and terminals have something to do; a tool at its prompt has not."""
        return len(self.running) + self.busy_terminals

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Counts a terminal as one that has something to do."""
        self.busy_terminals += 1
        try:
            yield
        finally:
            self.busy_terminals -= 1

    def check_open(self) -> "Sandbox":
        """The sandbox, where new work may be given to it.

        Raises: SessionTerminatedError, BudgetExceededError, InvalidTransitionError when
        paused, ConflictError while the level changes or its secrets are not known again,
        SandboxUnavailableError without a sandbox.
        """
        self.check_live()
        if self.status is Status.PAUSED:
            raise InvalidTransitionError("the session is paused: resume it first")
        if self.gate is not None and self.lock.locked():
            raise ConflictError(self.gate)  # it is being changed right now
        if self.gate is not None or self.sandbox is None:
            raise SandboxUnavailableError(
                self.gate or "the session's sandbox is not running: set its permission level again"
            )
        self.secrets.check_known()
        return self.sandbox

    def check_room(self) -> None:
        """Raises: BusyError where as many commands and terminals run as may.

        A command of which evidence is still being written is one of them.
        """
        at_work = sum(not each.settled for each in self.commands.values())
        if at_work + len(self.terminals) >= MAX_RUNNING:
            raise BusyError(
                f"{MAX_RUNNING} commands and terminals run in this session already: wait for one "
                "of them to end, or end one"
            )

    def check_live(self) -> None:
        """Raises: SessionTerminatedError with the rationale when the session has ended.

        BudgetExceededError where its budget ended it, or is about to.
        """
        if self.budget.exceeded is not None:
            raise self.budget.exceeded.error()
        if not self.live:
            termination = self.termination
            code = termination.rationale_code if termination else None
            raise SessionTerminatedError(
                f"the session has ended ({self.status})",
                session_status=str(self.status),
                rationale=code,
            )

    def check_not_ending(self) -> None:
        """Raises: ConflictError while it is ending, and what `check_live` does."""
        self.check_live()
        if self.ending:
            raise ConflictError("the session is ending")

    @contextmanager
    def streaming(self, kind: str) -> Iterator[None]:
        """Counts an open stream of that kind."""
        self.streams[kind] += 1
        try:
            yield
        finally:
            self.streams[kind] -= 1

    def remember(self, command: Command) -> None:
        """Keeps a command; of those that have ended the latest, and all whose output is stored."""
        self.commands[command.id] = command
        ended = [kept for kept in self.commands.values() if kept.settled]
        stored = [kept for kept in ended if kept.stored][-MOST_STORED:]
        for kept in ended[: max(0, len(ended) - _REMEMBERED_COMMANDS)]:
            if kept not in stored:
                del self.commands[kept.id]
