"""What the operations of a turn work with."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from orchestrator.programs.turns.host_tools import HostTools
from orchestrator.programs.turns.inheritance import SpawnRequest
from orchestrator.programs.turns.notes import Notes
from orchestrator.programs.turns.operation_log import OperationLog
from orchestrator.programs.turns.operations.turn_operation import StagedChange
from orchestrator.programs.turns.runs.conversation import Conversation
from orchestrator.programs.turns.runs.feed import RunFeed
from orchestrator.programs.turns.scopes import Scopes
from orchestrator.programs.turns.terminals import TurnTerminals
from orchestrator.programs.turns.turn import AgentRun
from orchestrator.rules.access.keys import Principal
from orchestrator.state.family import SpawnResult
from orchestrator.state.session import Session
from orchestrator.work.code.cells import Cells
from orchestrator.work.code.contexts import Contexts
from orchestrator.work.commands.execution import Executions
from orchestrator.work.commands.governed_commands import GovernedCommands
from orchestrator.work.files.file_trees import FileTrees
from orchestrator.work.files.files import Files
from orchestrator.work.memory.memory import Memory
from orchestrator.work.models.models import Models
from orchestrator.work.proposals.listing import ProposalPage, StagedCounts
from orchestrator.work.shells.kept_shells import KeptShells
from orchestrator.work.terminals.governed_terminals import GovernedTerminals
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.terminals import Terminals


class SpawnedChild(Protocol):
    """A child whose run has ended, and how."""

    @property
    def spawn_id(self) -> str:
        """The id of the spawn."""

    @property
    def child(self) -> Session:
        """The child."""

    @property
    def result(self) -> SpawnResult:
        """How its run ended."""


# The caller, the parent, the child to spawn, the run in it, the feed for its events, the call's id.
Spawn: TypeAlias = Callable[
    [Principal, Session, SpawnRequest, AgentRun, RunFeed | None, str | None],
    Awaitable[SpawnedChild],
]


class Services(NamedTuple):
    """The parts of the control plane that operations use.

    `staged` gives what is proposed, and `roll_back` discards it for a turn with that number.
    `using` gives a session a sandbox again that has none. `spawn` runs a model in a child.
    """

    files: Files
    file_trees: FileTrees
    executions: Executions
    models: Models
    staged: Callable[[Principal, Session], Awaitable[ProposalPage]]
    roll_back: Callable[[Principal, Session, int], Awaitable[StagedCounts]]
    using: Callable[[Principal, Session], AbstractAsyncContextManager[None]]
    memory: Memory
    commands: GovernedCommands
    tools: GovernedTerminals
    terminals: Terminals
    session_tools: SessionTools
    host_tools: HostTools
    spawn: Spawn
    kept_shells: KeptShells
    contexts: Contexts
    cells: Cells


@dataclass(frozen=True, slots=True)
class OperationContext:
    """One turn of a session, on behalf of a caller.

    `terminals` are the turn's own; `conversation` is a run's. `staged` has what the turn proposes,
    with times.
    """

    services: Services
    principal: Principal
    session: Session
    number: int
    scopes: Scopes
    notes: Notes
    log: OperationLog
    terminals: TurnTerminals
    conversation: Conversation | None = None
    staged: list[tuple[StagedChange, str]] = field(default_factory=list)
