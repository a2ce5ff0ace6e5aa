"""Messages between agent and guard: short, complete, and strictly parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.enforce import guard_messages
from sandbox_agent.enforce.guard_messages import Denied, Ended, Failed, Gone, Order, Report, Step

NUMBERS = st.integers(0, 10**18 - 1)
REPORTS = st.one_of(
    st.builds(Failed, st.sampled_from(Step), st.integers(1, 4095)),
    st.builds(Denied, NUMBERS),
    st.builds(Ended, st.integers(0, 0xFFFF), NUMBERS, NUMBERS, st.booleans(), st.booleans()),
    st.builds(Gone, NUMBERS),
)


@given(REPORTS)
def test_a_report_arrives_as_it_was_sent(report: Report) -> None:
    message = guard_messages.report(report)
    assert len(message) <= guard_messages.MOST_BYTES
    assert guard_messages.parse_report(message) == report


@given(st.integers(1, 64), NUMBERS)
def test_an_order_arrives_as_it_was_sent(signal: int, number: int) -> None:
    for kind in (guard_messages.TERM, guard_messages.KILL):
        assert guard_messages.parse_order(guard_messages.order(kind, number)) == Order(
            kind, None, number
        )
    message = guard_messages.order(guard_messages.signal_order(signal), number)
    assert len(message) <= guard_messages.MOST_BYTES
    assert guard_messages.parse_order(message) == Order(b"s", signal, number)


@given(NUMBERS, NUMBERS)
def test_what_a_command_is_told_is_for_it_alone(number: int, other: int) -> None:
    messages = {guard_messages.plan(number), guard_messages.go(number)}
    others = {guard_messages.plan(other), guard_messages.go(other)}
    assert len(messages) == 2
    assert all(len(message) <= guard_messages.MOST_BYTES for message in messages)
    assert number == other or not messages & others


WORDS = st.binary(max_size=40) | st.from_regex(rb"[XDEGtkspL][0-9 ]*", fullmatch=True)


@given(WORDS)
def test_nothing_else_is_a_report(message: bytes) -> None:
    try:
        report = guard_messages.parse_report(message)
    except ValueError:
        return
    assert guard_messages.parse_report(guard_messages.report(report)) == report


@given(WORDS)
def test_nothing_else_is_an_order(message: bytes) -> None:
    order = guard_messages.parse_order(message)
    assert order is None or order.kind in (b"s", b"t", b"k")


HALVES = [
    "",
    "X",
    "X9 1",
    "X0 0",
    "X0 99999",
    "E1 2 3",
    "E1 2 3 1",
    "E70000 0 0 0 0",
    "G-1",
    "G1 1",
]


@pytest.mark.parametrize("message", HALVES)
def test_half_a_report_is_none(message: str) -> None:
    with pytest.raises(ValueError, match=r"report|Step"):
        guard_messages.parse_report(message.encode())
