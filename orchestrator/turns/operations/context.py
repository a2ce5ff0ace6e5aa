"""What the operations of a turn work with."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from orchestrator.access.keys import Principal
from orchestrator.commands.execution import Executions
from orchestrator.commands.governed import GovernedCommands
from orchestrator.memory.service import Memory
from orchestrator.models.service import Models
from orchestrator.proposals.listing import ProposalPage, StagedCounts
from orchestrator.sessions.files import Files
from orchestrator.sessions.session import Session
from orchestrator.terminals.governed import GovernedTerminals
from orchestrator.terminals.service import Terminals
from orchestrator.tools.session_tools import SessionTools
from orchestrator.turns.notes import Notes
from orchestrator.turns.operation_log import OperationLog
from orchestrator.turns.operations.turn_operation import StagedChange
from orchestrator.turns.runs.conversation import Conversation
from orchestrator.turns.runs.feed import RunFeed
from orchestrator.turns.scopes import Scopes
from orchestrator.turns.terminals import TurnTerminals
from orchestrator.turns.turn import AgentRun
from orchestrator.webhooks.host_tools import HostTools

if TYPE_CHECKING:
    from orchestrator.spawning.inheritance import SpawnRequest
    from orchestrator.spawning.runs import SpawnedRun


# The caller, the parent, the child to spawn, the run in it, where it is told, and the tool's call.
Spawn: TypeAlias = Callable[
    [Principal, Session, "SpawnRequest", AgentRun, RunFeed | None, str | None],
    Awaitable["SpawnedRun"],
]


class Services(NamedTuple):
    """The parts of the control plane that operations use.

    `staged` gives what is proposed, and `roll_back` discards it for a turn with that number.
    `using` gives a session a sandbox again that has none. `spawn` runs a model in a child.
    """

    files: Files
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


@dataclass(frozen=True, slots=True)
class OperationContext:
    """One turn of a session, on behalf of a caller.

    `terminals` are the turn's own; `conversation` is that of a run. `staged`: what it proposes,
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
