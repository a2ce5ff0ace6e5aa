"""What the operations of a turn work with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.access.keys import Principal
from orchestrator.commands.execution import Executions
from orchestrator.models.service import Models
from orchestrator.proposals.listing import ProposalPage
from orchestrator.sessions.files import Files
from orchestrator.sessions.session import Session
from orchestrator.turns.notes import Notes
from orchestrator.turns.operation_log import OperationLog
from orchestrator.turns.scopes import Scopes


class Services(NamedTuple):
    """The parts of the control plane that operations use; `staged` gives what is proposed."""

    files: Files
    executions: Executions
    models: Models
    staged: Callable[[Principal, Session], Awaitable[ProposalPage]]


@dataclass(frozen=True, slots=True)
class OperationContext:
    """One turn of a session, on behalf of a caller."""

    services: Services
    principal: Principal
    session: Session
    number: int
    scopes: Scopes
    notes: Notes
    log: OperationLog
