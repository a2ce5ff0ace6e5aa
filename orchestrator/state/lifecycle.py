"""Transitions of a session's status, and the classification of its end. No I/O."""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.ground.errors import InvalidTransitionError
from paddock.contract.words import Activity, Rationale, Status

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


class Suspension(StrEnum):
    """How far a session's sandbox is given up, or given back."""

    BEGINNING = "beginning"
    SUSPENDED = "suspended"
    RESTORING = "restoring"


@dataclass(frozen=True, slots=True)
class Termination:
    """How a session ended. `exit_classification` is SUCCESS or FAILURE; times are RFC 3339."""

    rationale_code: Rationale
    exit_classification: str
    exit_code: int | None
    terminated_at: str


def check_transition(current: Status, wanted: Status) -> None:
    """Raises InvalidTransitionError for a step that is not in the table."""
    if wanted not in TRANSITIONS[current]:
        raise InvalidTransitionError(f"a session that is {current} cannot become {wanted}")


def activity(status: Status, *, works: bool, suspended: bool = False) -> Activity:
    """A session's activity, from its status and whether commands, tools or a turn are busy."""
    if status not in LIVE:
        return Activity.CLOSED
    if suspended:
        return Activity.SUSPENDED
    return Activity.RUNNING if works else Activity.IDLE
