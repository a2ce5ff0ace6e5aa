"""Chunks of a file are under way several at a time, in order, and a failure ends all of them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import SandboxUnavailableError, TooLargeError
from orchestrator.work.files.file_stream import FileStream
from sandbox_agent.decide.protocol import CHUNK_BYTES, MOST_AHEAD, Message

pytestmark = pytest.mark.asyncio


class AgentWithFile:
    """Answers in order when it is told to; counts the requests under way."""

    def __init__(self, content: bytes = b"", fails_at: int | None = None) -> None:
        self.content = bytearray(content)
        self.written: list[bytes] = []
        self.under_way = self.most = self.asked = 0
        self._fails_at = fails_at
        self.go = asyncio.Event()
        self.go.set()
        self.crowded = asyncio.Event()

    async def request(self, method: str, params: Message) -> Message:
        self.under_way += 1
        self.asked += 1
        number = self.asked
        self.most = max(self.most, self.under_way)
        if self.under_way == MOST_AHEAD:
            self.crowded.set()
        try:
            await self.go.wait()
            await asyncio.sleep(0)
            if number == self._fails_at:
                raise SandboxUnavailableError("gone")
            if method == "file.push":
                self.written.append(params["data"])
                return {}
            data = bytes(self.content[: params["limit"]])
            del self.content[: params["limit"]]
            return {"data": data}
        finally:
            self.under_way -= 1


def stream(agent: AgentWithFile) -> FileStream:
    return FileStream(cast(Any, agent), 1)


async def pieces(*sizes: int) -> AsyncIterator[bytes]:
    for number, size in enumerate(sizes):
        yield bytes([number % 256]) * size


@given(st.integers(0, 12 * CHUNK_BYTES))
async def test_a_file_arrives_whole_and_in_order(size: int) -> None:
    content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    agent = AgentWithFile(content)
    assert b"".join([chunk async for chunk in stream(agent).chunks()]) == content
    assert agent.most <= MOST_AHEAD
    assert agent.under_way == 0


async def test_a_small_file_takes_no_more_requests_than_it_needs() -> None:
    agent = AgentWithFile(b"small")
    assert [chunk async for chunk in stream(agent).chunks()] == [b"small"]
    assert (agent.asked, agent.most) == (2, 1)


async def test_a_reader_that_stops_leaves_no_request() -> None:
    agent = AgentWithFile(bytes(20 * CHUNK_BYTES))
    chunks = cast(Any, stream(agent).chunks())
    for _ in range(4):
        await anext(chunks)
    await chunks.aclose()
    assert agent.most == MOST_AHEAD
    assert agent.under_way == 0


@given(st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=6))
async def test_what_is_written_is_in_order(sizes: list[int]) -> None:
    agent = AgentWithFile()
    await stream(agent).push(pieces(*sizes), sum(sizes))
    assert b"".join(agent.written) == b"".join([piece async for piece in pieces(*sizes)])
    assert all(len(data) <= CHUNK_BYTES for data in agent.written)
    assert agent.most <= MOST_AHEAD
    assert agent.under_way == 0


async def test_a_slow_agent_holds_up_the_writer() -> None:
    agent = AgentWithFile()
    agent.go.clear()
    taken = []

    async def watched() -> AsyncIterator[bytes]:
        for number in range(20):
            taken.append(number)
            yield b"x"

    pushing = asyncio.create_task(stream(agent).push(watched(), 20))
    await agent.crowded.wait()
    assert len(taken) == MOST_AHEAD + 1
    agent.go.set()
    await pushing
    assert agent.written == [b"x"] * 20


async def test_a_failure_is_told_while_the_next_piece_is_awaited() -> None:
    agent = AgentWithFile(fails_at=2)

    async def stuck() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"
        await asyncio.Event().wait()

    with pytest.raises(SandboxUnavailableError, match="gone"):
        await stream(agent).push(stuck(), 100)
    assert agent.under_way == 0


async def test_too_many_bytes() -> None:
    agent = AgentWithFile()
    with pytest.raises(TooLargeError, match="10 bytes"):
        await stream(agent).push(pieces(6, 6), 10)
    assert agent.under_way == 0


@pytest.mark.parametrize("answer", [{}, {"data": "text"}, {"data": None}, {"data": 5}])
async def test_an_answer_without_bytes_is_malformed(answer: Message) -> None:
    class Liar:
        async def request(self, _method: str, _params: Message) -> Message:
            return answer

    with pytest.raises(SandboxUnavailableError, match="malformed"):
        [chunk async for chunk in FileStream(cast(Any, Liar()), 1).chunks()]
