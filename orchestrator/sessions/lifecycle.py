"""What a session's status may become, and what its end is called. No I/O."""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.errors import InvalidTransitionError


class Status(StrEnum):
    """Where a session is in its life; the last three are final."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    ABORTED = "aborted"
    BUDGET_EXCEEDED = "budget-exceeded"


class Activity(StrEnum):
    """What a session does right now."""

    IDLE = "idle"
    RUNNING = "running"
    CLOSED = "closed"


class Rationale(StrEnum):
    """Why a session ended; the only codes that are ever reported."""

    NORMAL = "normal"
    CRASH = "crash"
    TIMEOUT = "timeout"
    QUARANTINED = "quarantined"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CONTEXT_MISS = "CONTEXT_MISS"


LIVE = frozenset({Status.ACTIVE, Status.PAUSED})
TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.ACTIVE: frozenset(
        {Status.PAUSED, Status.COMPLETED, Status.ABORTED, Status.BUDGET_EXCEEDED}
    ),
    Status.PAUSED: frozenset(
        {Status.ACTIVE, Status.COMPLETED, Status.ABORTED, Status.BUDGET_EXCEEDED}
    ),
    Status.COMPLETED: frozenset(),
    Status.ABORTED: frozenset(),
    Status.BUDGET_EXCEEDED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Termination:
    """How a session ended. `exit_classification` is SUCCESS or FAILURE; times are RFC 3339."""

    rationale_code: Rationale
    exit_classification: str
    exit_code: int | None
    terminated_at: str


def check_transition(current: Status, wanted: Status) -> None:
    """Raises: InvalidTransitionError where the table does not have that step."""
    if wanted not in TRANSITIONS[current]:
        raise InvalidTransitionError(f"a session that is {current} cannot become {wanted}")


def activity(status: Status, running: int) -> Activity:
    """What a session does, from its status and how many commands and tools are at work."""
    if status not in LIVE:
        return Activity.CLOSED
    return Activity.RUNNING if running else Activity.IDLE
