"""Session status: the table of transitions, and what follows from each status."""

import itertools

from orchestrator.ground.errors import InvalidTransitionError
from orchestrator.state.lifecycle import LIVE, TRANSITIONS, activity, check_transition
from paddock.contract.words import Activity, Rationale, Status
from tests.support.raised import raised


def test_only_what_the_table_has_is_allowed() -> None:
    for current, wanted in itertools.product(Status, Status):
        refusal = raised(InvalidTransitionError, check_transition, current, wanted)
        if wanted in TRANSITIONS[current]:
            assert refusal is None
        else:
            assert f"{current} cannot become {wanted}" in str(refusal)


def test_every_status_is_in_the_table_and_final_ones_lead_nowhere() -> None:
    assert set(TRANSITIONS) == set(Status)
    assert {status for status in Status if not TRANSITIONS[status]} == set(Status) - LIVE


def test_activity_follows_from_status_and_commands() -> None:
    assert activity(Status.ACTIVE, works=False) is Activity.IDLE
    assert activity(Status.ACTIVE, works=True) is Activity.RUNNING
    assert activity(Status.PAUSED, works=False) is Activity.IDLE
    assert activity(Status.COMPLETED, works=False) is Activity.CLOSED
    assert activity(Status.ABORTED, works=True) is Activity.CLOSED


def test_rationale_codes_are_exactly_the_published_ones() -> None:
    assert {str(code) for code in Rationale} == {
        "normal",
        "crash",
        "timeout",
        "quarantined",
        "budget_exhausted",
        "CONTEXT_MISS",
        "moved",
    }
