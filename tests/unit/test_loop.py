"""The agent's loop: timers run once, in order, and cancelled ones do not accumulate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core import loop as loop_module
from sandbox_agent.core.loop import Loop, Timer

_HOUR = 3600.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list with one item."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def kept(loop: Loop) -> int:
    return len(loop._timers)


def test_timers_that_are_set_and_cancelled_again_and_again_take_no_room() -> None:
    loop = Loop()
    loop.after(_HOUR, lambda: None)  # keeps later timers from being dropped as a side effect
    most = 0
    for _ in range(10_000):
        loop.after(2 * _HOUR, lambda: None).cancel()
        most = max(most, kept(loop))
    assert most < 200


def test_half_of_many_may_be_cancelled_ones() -> None:
    loop = Loop()
    timers = [loop.after(_HOUR + number, lambda: None) for number in range(1000)]
    for timer in timers[:500]:
        timer.cancel()
    assert kept(loop) == 1000
    timers[500].cancel()
    assert kept(loop) == 499
    for timer in timers:
        timer.cancel()
    assert kept(loop) <= 65


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "cancel", "cancel", "run"]), st.integers(0, 300)),
        max_size=200,
    )
)
def test_each_timer_that_was_not_cancelled_is_called_once_when_it_is_due(
    steps: list[tuple[str, int]],
) -> None:
    now = 0.0
    loop, timers, called = Loop(), list[tuple[Timer, float]](), list[int]()
    cancelled: set[int] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_module, "_MOST_CANCELLED", 3)
        patch.setattr("time.monotonic", lambda: now)
        for step, number in steps:
            if step == "set":
                index = len(timers)
                timers.append(
                    (loop.after(number, lambda index=index: called.append(index)), now + number)  # type: ignore[misc]
                )
            elif step == "cancel" and timers:
                index = number % len(timers)
                timers[index][0].cancel()
                if index not in called:
                    cancelled.add(index)
            elif step == "run":
                now += number
                loop._run_timers()
                due = [index for index, (_, at) in enumerate(timers) if at <= now]
                assert sorted(called) == [index for index in due if index not in cancelled]
                waiting = sum(timer.pending for timer, _ in timers)
                assert waiting == len(timers) - len(called) - len(cancelled)
                assert kept(loop) <= max(2 * waiting, waiting + 3)


def test_a_timer_that_was_called_can_be_cancelled_and_counts_for_nothing(now: list[float]) -> None:
    loop = Loop()
    called: list[str] = []
    timers = [loop.after(1, lambda: called.append("once")) for _ in range(100)]
    later = loop.after(_HOUR, lambda: called.append("later"))
    now[0] += 1
    loop._run_timers()
    assert called == ["once"] * 100
    for timer in timers:
        timer.cancel()
    assert later.pending
    now[0] += _HOUR
    loop._run_timers()
    assert called[-1] == "later"
    loop._run_timers()
    assert len(called) == 101


def test_a_callback_may_cancel_others(now: list[float]) -> None:
    loop = Loop()
    called: list[int] = []
    others = [loop.after(2, lambda: called.append(2)) for _ in range(200)]

    def first() -> None:
        called.append(1)
        for timer in others:
            timer.cancel()

    loop.after(1, first)
    loop.after(3, lambda: called.append(3))
    now[0] += 5
    loop._run_timers()
    assert called == [1, 3]
    assert kept(loop) == 0
