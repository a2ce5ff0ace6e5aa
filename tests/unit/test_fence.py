"""Whatever clocks and networks do, a node's sessions stand still before others take them over."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.copies import LOST_SECONDS
from orchestrator.cluster.fence import FENCE_SECONDS, decide, passed_over
from orchestrator.cluster.postgres.lease import LEASE_SECONDS, RENEWAL_SECONDS

seconds = st.floats(0, 600, allow_nan=False)
# How fast a clock goes, compared with the true time.
speeds = st.floats(0.9, 1.1)


@dataclass
class Renewal:
    """Moments of the true time: sent by the node, stored by the database, acknowledged, or lost."""

    sent: float
    stored: float
    acknowledged: float | None


@st.composite
def renewals(draw: st.DrawFn) -> list[Renewal]:
    """Sent one after the other; each may take any time, and its answer may be lost."""
    found, now = [], draw(seconds)
    for _ in range(draw(st.integers(1, 5))):
        sent = now + draw(st.floats(0, 30))
        stored = sent + draw(st.floats(0, 30))
        answered = stored + draw(st.floats(0, 30))
        found.append(Renewal(sent, stored, answered if draw(st.booleans()) else None))
        now = answered
    return found


@given(renewals(), speeds, speeds, seconds, st.floats(0, 3))
def test_the_fence_is_closed_before_anybody_may_take_over(
    all_of: list[Renewal], node_speed: float, database_speed: float, set_by: float, freezing: float
) -> None:
    """Also 3 s earlier, which the freezing may take; the node's clock begins anywhere."""
    # The lease ends after the last renewal that was stored, whether or not the node knows of it.
    until = max(each.stored for each in all_of) * database_speed + LEASE_SECONDS
    taken = (until + LOST_SECONDS) / database_speed

    def node_clock(moment: float) -> float:
        return set_by + moment * node_speed

    moment = taken - freezing
    known = [each.sent for each in all_of if each.acknowledged is not None]
    known = [each for each in known if each <= moment]
    sent = node_clock(max(known)) if known else float("-inf")
    assert decide(sent, node_clock(moment)).closed


@given(st.floats(0, 1e6), st.floats(0, FENCE_SECONDS, exclude_max=True))
def test_a_node_that_renews_is_open_and_knows_for_how_long(sent: float, since: float) -> None:
    now = sent + since
    found = decide(sent, now)
    if found.closed:  # only where the floats are equal
        assert now - sent >= FENCE_SECONDS - 1e-6
        return
    assert decide(sent, now + found.seconds + 1e-6).closed
    assert not decide(sent, sent + RENEWAL_SECONDS).closed


def test_a_node_that_never_had_a_lease_or_whose_clock_went_back_is_closed() -> None:
    assert decide(float("-inf"), 5.0).closed
    assert decide(10.0, 9.9).closed
    assert not decide(10.0, 10.0).closed


@given(st.floats(0, 1e6), st.floats(0, 600), st.floats(0, 30))
def test_a_fence_that_nobody_saw_closing_is_known_by_the_next_renewal(
    seen: float, silent: float, answered: float
) -> None:
    """A process that was stopped meanwhile hears of the next renewal first of all."""
    sent = seen + silent
    assert not decide(sent, sent + min(answered, 11.0)).closed
    assert passed_over(seen, sent) is decide(seen, sent).closed
