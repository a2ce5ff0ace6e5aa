"""Identical events in quick succession: above a rate, only their number is reported."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.decide.protocol import Message
from sandbox_agent.decide.repeats import Repeats

EVENTS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 0.2)), max_size=300)


def test_up_to_the_rate_everything_is_told() -> None:
    repeats: Repeats[str] = Repeats(10, 5)
    assert all(repeats.take("a", "a", number / 10) for number in range(100))
    assert repeats.drain() == []


def test_beyond_it_repeats_are_counted_and_what_is_new_is_told() -> None:
    repeats: Repeats[int] = Repeats(10, 5)
    told = [repeats.take("a", number, 0.0) for number in range(20)]
    assert told == [True] * 5 + [False] * 15
    assert repeats.take("b", 0, 0.0)
    assert repeats.drain() == [(19, 15)]
    assert repeats.drain() == []
    assert not repeats.take("a", 20, 0.0)
    assert repeats.take("a", 21, 1.0)


@given(EVENTS)
def test_nothing_is_lost_or_told_twice(events: list[tuple[str, float]]) -> None:
    repeats: Repeats[str] = Repeats(10, 3)
    told, counted, now = 0, 0, 0.0
    for like, after in events:
        now += after
        told += repeats.take(like, like, now)
        if told % 7 == 0:
            counted += sum(count for _, count in repeats.drain())
    counted += sum(count for _, count in repeats.drain())
    assert told + counted == len(events)


def test_what_is_known_is_bounded() -> None:
    repeats: Repeats[int] = Repeats(0, 0)
    for number in range(1000):
        assert repeats.take(str(number), number, 0.0)
    assert repeats.take("0", 0, 0.0)  # forgotten
    assert not repeats.take("999", 0, 0.0)


def test_what_is_counted_is_told_before_it_is_too_much() -> None:
    """Always new events, each sent twice, so that each has an unreported count."""
    sent: list[Message] = []
    events = EventBuffer("0" * 16, sent.append)
    most = 0
    for number in range(3000):
        for _ in range(2):
            events.emit_often("command.exec", args={"path": f"/{number}"}, error=None)
            most = max(most, len(events._repeats._known))
    assert most <= 2 * 64 + 1
    events.tell_repeats()
    told: dict[str, int] = {}
    for message in sent:
        args = message["params"]["args"]
        told[args["path"]] = told.get(args["path"], 0) + args.get("repeats", 1)
    assert told == {f"/{number}": 2 for number in range(3000)}


def test_the_agent_tells_repeats_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    sent: list[Message] = []
    events = EventBuffer("0" * 16, sent.append)
    for number in range(1000):
        told = events.emit_often("command.exec", args={"path": "/bin/true"}, error=None)
        assert (told is not None) == (number < 200)
    assert len(events) == 200
    events.emit("command.exit", args={}, error=None)
    *_, counted, last = (message["params"] for message in sent)
    assert (counted["operation"], counted["args"]) == (
        "command.exec",
        {"path": "/bin/true", "repeats": 800},
    )
    assert (last["operation"], last["seq"], counted["seq"]) == ("command.exit", 202, 201)


@pytest.mark.slow
def test_what_is_kept_of_repeats_is_bounded() -> None:
    events = EventBuffer("0" * 16, lambda message: None)
    words = [["x" * 1000] * 200, ["y" * 1000] * 200]
    tracemalloc.start()
    for number in range(1000):
        events.acknowledge(events.last)
        args = {"argv": [*words[number % 2], str(number)]}
        events.emit_often("command.exec", args=args, error=None)
        del args
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4_000_000
