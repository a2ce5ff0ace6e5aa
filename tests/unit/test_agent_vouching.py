"""A session whose control plane gives no word in time stands still, until the next word."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core.loop import Loop
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.run.vouching import Vouching

COMMAND_SECONDS = 5.0


class Stood:
    """An agent's part that keeps time, at a moment that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.stopped = False
        self.ended = self.dialled = 0
        self.loop = Loop()
        self.vouching = Vouching(self.loop, self._stop_all, lambda: self.now)
        self.answers: list[Message | AgentError] = []

    @contextmanager
    def _stop_all(self) -> Iterator[None]:
        assert not self.stopped
        self.stopped = True
        yield
        self.stopped = False

    def word(self, seconds: float) -> None:
        """Until when it may run, counted from now."""
        until = int((self.now + seconds) * 1000)
        self.vouching.vouch({"until_ms": until}, self.answers.append)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.loop._run_timers()


@pytest.fixture
def stood() -> Iterator[Stood]:
    with pytest.MonkeyPatch.context() as patch:
        found = Stood()
        patch.setattr("time.monotonic", lambda: found.now)
        yield found


def test_without_a_word_nothing_is_held_up(stood: Stood) -> None:
    stood.vouching.vouch({}, stood.answers.append)
    assert stood.answers == [{"now_ms": 1_000_000}]
    stood.pass_time(3600)
    assert not stood.stopped


def test_it_stands_still_once_the_time_is_over_and_goes_on_by_the_next_word(stood: Stood) -> None:
    stood.word(12)
    stood.pass_time(11)
    assert not stood.stopped
    stood.pass_time(1.1)
    assert stood.stopped
    stood.word(12)
    assert not stood.stopped
    stood.pass_time(13)
    assert stood.stopped


def test_a_word_that_comes_too_late_lets_nothing_go_on(stood: Stood) -> None:
    stood.word(1)
    stood.pass_time(2)
    stood.word(-1)
    assert stood.stopped


def test_nothing_ends_meanwhile_but_the_agent_still_dials(stood: Stood) -> None:
    def count(name: str) -> None:
        setattr(stood, name, getattr(stood, name) + 1)

    stood.loop.after(COMMAND_SECONDS, lambda: count("ended"))
    stood.loop.after(COMMAND_SECONDS, lambda: count("dialled"), always=True)
    dropped = stood.loop.after(COMMAND_SECONDS, lambda: count("ended"))
    stood.word(1)
    stood.pass_time(2)
    dropped.cancel()
    stood.pass_time(COMMAND_SECONDS)
    assert (stood.ended, stood.dialled) == (0, 1)
    stood.word(10)
    stood.pass_time(0)
    assert (stood.ended, stood.dialled) == (1, 1)


@pytest.mark.parametrize("until", [-1, 1.5, True, "1", [], {}, 2**60])
def test_a_wrong_time_is_refused_and_changes_nothing(stood: Stood, until: object) -> None:
    stood.word(5)
    with pytest.raises(AgentError, match="until_ms"):
        stood.vouching.vouch({"until_ms": until}, stood.answers.append)
    stood.pass_time(4)
    assert not stood.stopped
    stood.pass_time(2)
    assert stood.stopped


@given(st.lists(st.tuples(st.floats(0, 4), st.none() | st.floats(-2, 4)), max_size=20))
def test_it_runs_only_within_the_last_word(steps: list[tuple[float, float | None]]) -> None:
    """At a look each second, and never longer than that."""
    with pytest.MonkeyPatch.context() as patch:
        stood = Stood()
        patch.setattr("time.monotonic", lambda: stood.now)
        until = None
        for passing, word in steps:
            stood.pass_time(passing)
            if until is not None:
                assert stood.stopped is (stood.now >= until)
            if word is not None:
                until = int((stood.now + word) * 1000) / 1000
                stood.word(word)
                assert stood.stopped is (stood.now >= until)
