"""How many executions a command may be ahead of the durable record."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.decide.protocol import (
    MOST_UNACKNOWLEDGED_EXECS,
    MOST_UNACKNOWLEDGED_REPEATS,
    Message,
)
from sandbox_agent.enforce.exec_record import Source


class Played:
    """A command that executes as soon as it may; the test decides about acknowledgements."""

    def __init__(self) -> None:
        self._sent: list[Message] = []
        self._events = EventBuffer("0" * 16, lambda message: self._sent.append(message["params"]))
        self._source = Source(None, root=1)
        self._source.begin("c")
        self.executed = 0

    def execute(self, word: str) -> bool:
        """Executes one more program, if that is allowed now."""
        if not self._source.may_execute(self._events):
            return False
        args = {"command_id": "c", "argv": [word]}
        self._source.executed(self._events.emit_often("command.exec", args=args))
        self.executed += 1
        return True

    def acknowledge(self, most: int) -> None:
        """Makes up to `most` more events durable."""
        self._events.acknowledge(min(self._events.acknowledged + most, self._events.last))

    @property
    def missing(self) -> tuple[int, int]:
        """What a crash would lose now: single programs, and repetitions of recorded ones."""
        durable = [event for event in self._sent if event["seq"] <= self._events.acknowledged]
        single = [event for event in self._sent if "repeats" not in event["args"]]
        told = sum(event["args"].get("repeats", 1) for event in durable)
        alone = sum(event["seq"] > self._events.acknowledged for event in single)
        return alone, self.executed - told - alone

    def finish(self) -> int:
        """The number of executions on record in the end."""
        self._events.tell_repeats()
        return sum(event["args"].get("repeats", 1) for event in self._sent)


STEPS = st.lists(
    st.tuples(st.integers(1, 300), st.sampled_from(["same", "same", "other"]), st.integers(0, 40)),
    max_size=30,
)


@given(STEPS)
def test_few_are_missing_at_any_time(steps: list[tuple[int, str, int]]) -> None:
    played = Played()
    for times, word, acknowledged in steps:
        for _ in range(times):
            allowed = played.execute(word)
            alone, repeats = played.missing
            assert alone <= MOST_UNACKNOWLEDGED_EXECS
            assert repeats <= MOST_UNACKNOWLEDGED_REPEATS
            if not allowed:
                break
        played.acknowledge(acknowledged)
    assert played.finish() == played.executed


def test_whoever_waits_goes_on_when_what_was_is_durable() -> None:
    played = Played()
    for _ in range(5000):
        if not played.execute("same"):
            played.acknowledge(10**6)
            assert played.execute("same")
    assert played.executed >= 5000
