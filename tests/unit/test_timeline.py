"""Timelines: whatever is said, endpoints take it again, and it stays within its bounds."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.programs.turns.runs.feed import RunEvent, RunFeed
from orchestrator.programs.turns.runs.run_tool import ToolArgumentsError
from orchestrator.programs.turns.runs.timeline import (
    MAX_TIMELINE_ENTRIES,
    MOST_CHARACTERS,
    TimelineEntry,
    as_messages,
    kept,
    sent,
    surplus,
)
from orchestrator.programs.turns.runs.tools import TOOLS
from orchestrator.work.models.messages import ModelMessage, ToolCall
from orchestrator.work.models.tool_calls import MOST_CALLS, CallPieces

_TEXTS = st.text(st.characters(codec=None), max_size=20)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=5,
)
_ARGUMENTS = _TEXTS | _JSON.map(json.dumps)
_IDS = st.sampled_from("abc")
_CALLS = st.lists(
    st.builds(ToolCall, _IDS, _TEXTS, _ARGUMENTS), max_size=3, unique_by=lambda call: call.id
)
_MESSAGES = st.lists(
    st.builds(lambda text: ModelMessage("user", text), _TEXTS)
    | st.builds(lambda text, calls: ModelMessage("assistant", text, tuple(calls)), _TEXTS, _CALLS)
    | st.builds(lambda text, call: ModelMessage("tool", text, call=call), _TEXTS, _IDS)
)


def entries(messages: list[ModelMessage]) -> list[TimelineEntry]:
    return [
        TimelineEntry.made(seq, 1, "2026-03-04T09:30:13.114210Z", kept(message))
        for seq, message in enumerate(messages, 1)
    ]


@given(_MESSAGES)
def test_each_call_has_one_result_and_valid_arguments(messages: list[ModelMessage]) -> None:
    waiting: list[str] = []
    for message in as_messages(entries(messages)):
        json.dumps(message.json(), ensure_ascii=False).encode()
        if message.role == "tool":
            assert message.call in waiting
            waiting.remove(message.call)
            continue
        assert not waiting
        waiting = [each.id for each in message.calls]
        assert all(isinstance(json.loads(each.arguments), dict) for each in message.calls)
    assert not waiting


@given(_MESSAGES)
def test_entries_are_restored(messages: list[ModelMessage]) -> None:
    for each in entries(messages):
        assert TimelineEntry.restored(each.seq, each.turn, each.time, each.text) == each


@given(st.lists(st.integers(1, MOST_CHARACTERS), min_size=1, max_size=MAX_TIMELINE_ENTRIES + 20))
def test_the_oldest_go_first(sizes: list[int]) -> None:
    left = sizes[surplus(sizes) :]
    assert 1 <= len(left) <= MAX_TIMELINE_ENTRIES
    assert sum(left) <= MOST_CHARACTERS or len(left) == 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 40), st.integers(1, 40))
def test_as_many_stay_as_are_wanted_or_spared(sizes: list[int], most: int, spared: int) -> None:
    left = sizes[surplus(sizes, most, spared) :]
    assert len(left) == min(len(sizes), max(most, spared))


@given(st.sampled_from(sorted(TOOLS)), _ARGUMENTS)
def test_arguments_are_read_or_refused(name: str, text: str) -> None:
    tool = TOOLS[name]
    try:
        operation = tool.operation(tool.read(text))
    except ToolArgumentsError:
        pass
    else:
        assert operation.name in tool.operations


@given(st.lists(st.tuples(st.integers(0, 40) | st.none(), _TEXTS, _TEXTS, _TEXTS)))
def test_streamed_calls_are_bounded_and_told_apart(pieces: list[tuple[Any, ...]]) -> None:
    calls = CallPieces()
    for index, identity, name, arguments in pieces:
        function = {"name": name, "arguments": arguments}
        size = calls.add([{"index": index, "id": identity, "function": function}])
        assert size > len(arguments)
    called = calls.called
    assert len(called.calls) <= MOST_CALLS
    assert len({each.id for each in called.calls}) == len(called.calls)


def test_pieces_of_any_form_are_no_calls() -> None:
    calls = CallPieces()
    odd: Any
    for odd in (None, 5, "text", [None, 5], [{"function": 5}], [{"id": []}], {"a": 1}):
        calls.add(odd)
    assert all(each.name == "" for each in calls.called.calls)


@given(_MESSAGES, st.integers(0, 3))
def test_what_is_sent_is_new_or_was_asked_in_the_turn(
    messages: list[ModelMessage], long: int
) -> None:
    many = entries([*messages, *[ModelMessage("user", "x" * 60_000)] * long, *messages] * 4)
    found = sent(many, 2)
    assert found == many[len(many) - len(found) :]
    assert len(found) == len(many) or sum(len(each.text) for each in found) <= 384 * 1024
    assert sent(many, 1) == [each for each in many if each in found or each.message.role == "user"]


async def test_a_feed_keeps_the_latest_events() -> None:
    feed = RunFeed()
    for number in range(1, 5000):
        feed.add("tool_result", tick=1, id=str(number), content="x" * 10_000)
    assert feed.after(4999) == []
    found = feed.after(0)
    assert [number for number, _ in found] == list(range(found[0][0], 5000))
    assert 100 < len(found) < 300
    assert all(event.members["id"] == str(number) for number, event in found)
    feed.end()
    assert [each async for each in feed.follow(60)] == found


async def test_who_follows_a_feed_gets_news_as_they_come() -> None:
    feed = RunFeed()

    async def news() -> None:
        feed.add("tick", tick=1)

    async with aclosing(feed.follow(0)) as events:
        assert await anext(events) is None
    async with aclosing(feed.follow(60)) as events:
        found, _ = await asyncio.gather(anext(events), news())
        assert found == (1, RunEvent("tick", {"tick": 1}))
        feed.end()
        assert await anext(events, "the end") == "the end"
