"""A session as the control plane keeps it in memory."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from orchestrator.ground.errors import (
    BusyError,
    ClusterUnavailableError,
    ConflictError,
    InvalidTransitionError,
    NodeUnavailableError,
    SandboxUnavailableError,
    SessionTerminatedError,
)
from orchestrator.ground.events import time_text
from orchestrator.host.workspace.slots import Workspace
from orchestrator.rules.egress.drafts import Drafts
from orchestrator.rules.egress.session_rules import NO_OWN_RULES, OwnRules, SessionRules
from orchestrator.rules.egress.usage import EgressUsage
from orchestrator.rules.policy.levels import Level, SessionLimits
from orchestrator.rules.policy.session_policy import SAFE_ANALYSIS, SessionPolicy
from orchestrator.state.budget import Budget
from orchestrator.state.command import Command
from orchestrator.state.command_history import CommandHistory
from orchestrator.state.counted.telling import telling
from orchestrator.state.family import Family
from orchestrator.state.lifecycle import LIVE, Suspension, Termination
from orchestrator.state.open_port import SessionPorts
from orchestrator.state.pack import Pack
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets
from orchestrator.state.terms import Terms
from paddock.contract.words import IdleAction, Rationale, Status
from sandbox_agent.decide.protocol import WORKSPACE_DIR

# Commands and terminals that may run at the same time.
MAX_RUNNING = 16
# After which a client asks again for a session that is being moved.
_MOVE_SECONDS = 2
# Streams of unlimited duration that clients may have open.
STREAM_KINDS = ("events", "output", "downloads", "uploads", "terminals")


@telling("status", "level", "limits", "sandbox", "suspension")
@dataclass(slots=True, eq=False)
class Session:
    """One session. `key` is unique; several sessions may have the same `id`, one at a time.

    `incarnation` is its number among those, from 1.
    """

    key: str
    id: str
    owner: str
    status: Status
    level: Level
    # What its client asked for, and defaults for the rest.
    terms: Terms
    limits: SessionLimits
    budget: Budget
    handle_sha256: str
    workspace: Workspace
    root_dir: str
    created_at: str
    last_activity_at: str
    incarnation: int = 1
    # The cluster in which it has a place, and the place's number; '' and 0: in none.
    cluster: str = ""
    place: int = 0
    place_epoch: int = 0  # the node's epoch when it took that place here; it is not stored
    # Whether its chain is copied to the cluster: from its creation on, or from such a level on.
    ships: bool = False
    # Whether it stands still, because its node has no lease and another may take it over.
    fenced: bool = False
    # Whether it must: a process that was stopped wakes up before it has frozen anything.
    outlived: "Callable[[], bool]" = field(default=bool, repr=False)
    # The name of the node in that cluster, which is this one; it is not stored.
    node: str | None = None
    # What its turns may do, as it was at its creation.
    policy: SessionPolicy = SAFE_ANALYSIS
    # The number of episodes that it has had.
    episodes: int = 0
    # How often a session of this work was issued again.
    reissues: int = 0
    # The rules of its way out besides its level's, what it has used of it, and what was denied.
    own_rules: OwnRules = NO_OWN_RULES
    egress_usage: EgressUsage = field(default_factory=EgressUsage)
    egress_drafts: Drafts = field(default_factory=Drafts)
    secrets: SessionSecrets = field(default_factory=lambda: SessionSecrets(StoredSecrets(), {}))
    # What it may read; None: whatever its level permits. After its end, the pack may be unknown.
    pack: Pack | None = None
    # Its parent and its children.
    family: "Family[Session]" = field(default_factory=Family, repr=False)
    # Whether others have waited for its creation, and have it now.
    wanted: bool = False
    termination: Termination | None = None
    sandbox: Sandbox | None = None
    # Ids of the terminals that have not ended.
    terminals: set[str] = field(default_factory=set)
    # The number of terminals that are being started or have pending work.
    busy_terminals: int = 0
    commands: CommandHistory = field(default_factory=CommandHistory)
    ports: SessionPorts = field(default_factory=SessionPorts)
    # How far its sandbox is given up; None: it is not.
    suspension: Suspension | None = None
    # Whether a turn runs in it, which may wait for a model.
    in_turn: bool = False
    # The number of requests that need its sandbox now, or will at once.
    uses: int = 0
    # Serializes all changes of the status, the level and the sandbox.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Held while evidence of one of its commands is written.
    capturing: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Why an active session takes no new work; None if it does.
    gate: str | None = None
    # Whether its place may be another node's: until the cluster says, nothing is done with it.
    moving: bool = False
    # Whether its last event is being recorded.
    ending: bool = False
    # Called after what is counted of it has changed.
    on_change: "Callable[[Session], None] | None" = field(default=None, repr=False)
    # The number of clients' streams, by STREAM_KINDS.
    streams: Counter[str] = field(default_factory=Counter)
    # Done once it has ended, including its agent and its terminals. Except for ends that could not
    # be recorded yet, nothing more will be recorded about it. Its container may exist a while
    # longer.
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
    def moved_away(self) -> bool:
        """Whether it has ended here because it lives on another node."""
        ended = self.termination
        return ended is not None and ended.rationale_code is Rationale.MOVED

    @property
    def suspended(self) -> bool:
        """Whether it has no sandbox until its next use."""
        return self.suspension is Suspension.SUSPENDED

    @property
    def stages(self) -> bool:
        """Whether its changes are proposals until the host commits them."""
        return self.policy.world_rules.proposal_mode and not self.family.shares

    @property
    def idle_action(self) -> IdleAction:
        """What happens once it has been idle for its time-out."""
        return self.terms.idle_action or self.level.idle_action

    @property
    def workspace_path(self) -> str:
        """Where its workspace is in its sandbox: what absolute paths in it begin with."""
        return self.terms.workspace_path or WORKSPACE_DIR

    @property
    def egress_rules(self) -> SessionRules:
        """What it may reach at present."""
        return SessionRules(self.id, self.level.egress, self.own_rules)

    def set_level(self, level: Level) -> None:
        """Gives it that level, and removes what an admin allowed it at the earlier one."""
        self.level, self.own_rules = level, self.own_rules.at_another_level()
        self.ships = self.ships or self.must_ship(level)

    def must_ship(self, level: Level) -> bool:
        """Whether the loss of its node may not cost its record, at that level."""
        return self.place > 0 and (self.recovers or level.durability == "cluster")

    @property
    def recovers(self) -> bool:
        """Whether another node takes it over when its own is lost."""
        return self.terms.recovery == "snapshot"

    @property
    def running(self) -> list[Command]:
        """The commands that have not ended."""
        return [command for command in self.commands.unsettled if not command.ended]

    def latest(self, most: int) -> list[Command]:
        """The running commands and the latest ended ones; `most` in all, unless more run."""
        ended = [command for command in self.commands.values() if command.ended]
        kept = max(0, most - len(self.running))
        wanted = {command.id for command in (*self.running, *ended[len(ended) - kept :])}
        return [command for command in self.commands.values() if command.id in wanted]

    @property
    def at_work(self) -> int:
        """The number of commands and terminals that are busy.

        A tool at its prompt is not, and neither is a code context between cells.
        """
        return sum(not command.waits for command in self.running) + self.busy_terminals

    @property
    def works(self) -> bool:
        """Whether a command or a terminal is busy, or a turn runs or waits for its model."""
        return self.at_work > 0 or self.in_turn

    @property
    def in_use(self) -> bool:
        """Whether something is running in it or is about to, or in a child."""
        if self.works or self.uses > 0:
            return True
        return any(child.in_use for child in self.family.children.values())

    @property
    def latest_activity_at(self) -> str:
        """When something happened last in it or in a child."""
        children = self.family.children.values()
        return max([self.last_activity_at, *(child.latest_activity_at for child in children)])

    def restate(self, forward: timedelta) -> None:
        """Says its moments anew, by a clock that has been set forward by that much."""
        last = datetime.fromisoformat(self.last_activity_at)
        self.last_activity_at = time_text(last + forward)
        self.budget.started_at += forward

    @contextmanager
    def using(self) -> Iterator[None]:
        """Counts a request that needs its sandbox."""
        self.uses += 1
        try:
            yield
        finally:
            self.uses -= 1

    @contextmanager
    def busy_terminal(self) -> Iterator[None]:
        """Counts a terminal as busy."""
        self.busy_terminals += 1
        try:
            yield
        finally:
            self.busy_terminals -= 1

    def check_open(self) -> Sandbox:
        """The sandbox, if it may receive new work.

        Raises: SessionTerminatedError, BudgetExceededError, InvalidTransitionError if paused,
        ClusterUnavailableError while it is fenced,
        ConflictError while the level changes, its secrets are unknown or it is suspended;
        SandboxUnavailableError without a sandbox.
        """
        self.check_live()
        self.check_not_fenced()
        if self.status is Status.PAUSED:
            raise InvalidTransitionError("the session is paused: resume it first")
        if self.suspension is not None:
            raise ConflictError("the session is suspended, and nothing runs in it: try again")
        if self.gate is not None and self.lock.locked():
            raise ConflictError(self.gate)  # it is being changed right now
        if self.gate is not None or self.sandbox is None:
            raise SandboxUnavailableError(
                self.gate or "the session's sandbox is not running: set its permission level again"
            )
        self.secrets.check_known()
        return self.sandbox

    def check_room(self) -> None:
        """Raises BusyError if the maximum of commands and terminals is running.

        A command whose evidence is still being written counts.
        """
        if len(self.commands.unsettled) + len(self.terminals) >= MAX_RUNNING:
            raise BusyError(
                f"{MAX_RUNNING} commands and terminals run in this session already: wait for one "
                "of them to end, or end one"
            )

    def check_live(self) -> None:
        """Raises SessionTerminatedError with the rationale if the session has ended.

        Raises BudgetExceededError if its budget has ended it, or is about to.
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

    def check_settled(self) -> None:
        """Raises NodeUnavailableError while its place may be another node's."""
        if self.moving:
            raise NodeUnavailableError(
                "the session is being moved to another node: try again; nothing has been done",
                retry_after=_MOVE_SECONDS,
            )

    def check_not_ending(self) -> None:
        """Raises ConflictError while it is ending, and the errors of `check_live`."""
        self.check_live()
        if self.ending:
            raise ConflictError("the session is ending")

    def check_not_fenced(self) -> None:
        """Raises ClusterUnavailableError while it stands still because its node has no lease."""
        if self.fenced or (self.recovers and self.place and self.outlived()):
            raise ClusterUnavailableError(
                "the session stands still: its node does not reach the cluster's database, so"
                " another node may take it over: try again"
            )

    @contextmanager
    def streaming(self, kind: str) -> Iterator[None]:
        """Counts an open stream of that kind."""
        self.streams[kind] += 1
        try:
            yield
        finally:
            self.streams[kind] -= 1
