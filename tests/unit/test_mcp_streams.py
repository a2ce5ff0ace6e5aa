"""Streams of messages: what is kept of them, and how long."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.mcp import streams
from api.mcp.streams import Stream, Streams
from orchestrator.ground.errors import ValidationError
from paddock.contract.mcp import McpReply


def progress(number: int, size: int = 1) -> McpReply:
    return McpReply(jsonrpc="2.0", method="m", params={"number": number, "text": "x" * size})


async def numbers(stream: Stream, after: int = 0) -> list[int]:
    """The messages of a stream that has ended."""
    found = []
    async with aclosing(stream.events(after)) as events:
        async for event in events:
            if event is not None and isinstance(event.data, McpReply):
                found.append((event.data.params or {})["number"])
    return found


@pytest.fixture
def stream() -> Stream:
    return Stream(1, primed=True)


async def test_a_stream_keeps_its_latest_messages(stream: Stream) -> None:
    for number in range(1000):
        stream.add(progress(number))
    stream.end()
    stream.add(progress(2000))  # too late
    kept = await numbers(stream)
    assert kept == list(range(1000 - streams.MOST_MESSAGES, 1000))
    assert await numbers(stream, after=999) == [999]


async def test_a_stream_keeps_its_bytes_low(stream: Stream) -> None:
    for number in range(20):
        stream.add(progress(number, streams.MOST_BYTES // 4))
        assert stream.size <= streams.MOST_BYTES
    stream.add(progress(20, 2 * streams.MOST_BYTES))
    stream.end()
    assert await numbers(stream) == [20]


async def test_the_same_message_waits_once(stream: Stream) -> None:
    for _ in range(3):
        stream.add(progress(1), once=True)
    stream.add(progress(2), once=True)
    stream.end()
    assert await numbers(stream) == [1, 2]


async def test_ended_streams_are_kept_a_while() -> None:
    kept = Streams(primed=True)
    first = kept.open(primed=True)
    first.add(progress(1))
    first.end()
    assert kept.at(10**9) == (first, 0)
    assert first.ended_at is not None
    first.ended_at -= 2 * streams.RESUME_SECONDS
    with pytest.raises(ValidationError, match="no stream"):
        kept.at(10**9)


async def test_ended_streams_are_few_and_small() -> None:
    kept = Streams(primed=True)
    running = kept.open(primed=True)
    for number in range(3 * streams.MOST_ENDED):
        ended = kept.open(primed=True)
        ended.add(progress(number))
        ended.end()
    assert len(kept) <= streams.MOST_ENDED + 2
    for number in range(8):
        large = kept.open(primed=True)
        large.add(progress(number, streams.MOST_ENDED_BYTES // 2))
        large.end()
    assert len(kept) <= 4
    # What is not ended stays.
    assert kept.at(10**9)[0] is running


async def test_a_new_reader_ends_the_one_before(stream: Stream) -> None:
    first, second = stream.events(), stream.events()
    await anext(first)  # the event without data
    waiting = asyncio.ensure_future(anext(first, None))
    await anext(second)
    assert await waiting is None
    assert stream.has_reader
    await second.aclose()
    assert not stream.has_reader


@given(st.lists(st.integers(0, 50), max_size=100), st.integers(0, 200))
def test_what_is_read_on_is_in_order_and_not_twice(sizes: list[int], after: int) -> None:
    async def read() -> list[int]:
        stream = Stream(3, primed=True)
        for number, size in enumerate(sizes, start=1):
            stream.add(progress(number, size))
        stream.end()
        return await numbers(stream, after)

    found = asyncio.run(read())
    assert found == list(range(max(after, len(sizes) - streams.MOST_MESSAGES) + 1, len(sizes) + 1))
