"""Lines of standard input as messages, and their answers on standard output."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import NotFoundError
from paddock.cli.resources.mcp_relay import Relay, lines, parsed
from tests.support.limits import WAIT_SECONDS


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def collected(*data: bytes) -> list[bytes]:
    return [line async for line in lines(pieces(*data))]


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_lines_are_the_same_however_they_arrive(data: list[bytes]) -> None:
    whole = [line for line in b"".join(data).split(b"\n") if line.strip()]
    assert asyncio.run(collected(*data)) == whole


async def test_a_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.cli.resources.mcp_relay._MOST_LINE_BYTES", 4)
    with pytest.raises(ValueError, match="too long"):
        await collected(b"12345")


@given(st.binary(max_size=40))
def test_what_is_no_message(line: bytes) -> None:
    assert isinstance(parsed(line), dict | None)
    assert parsed(b"[" * 100_000) is None


class Served:
    """A session's conversation that ends once, as after a restart of the control plane."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = True

    async def initialize(self, message: dict[str, Any]) -> dict[str, Any]:
        self.begun += 1
        return {"id": message["id"], "result": {}}

    async def request(self, message: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        if self.begun == 1:
            raise NotFoundError(404, {"code": "not_found"})
        yield {"id": message["id"], "result": {"begun": self.begun}}


async def test_a_lost_conversation_begins_again() -> None:
    served, written, answered = Served(), list[dict[str, Any]](), asyncio.Event()

    async def write(message: dict[str, Any]) -> None:
        written.append(message)
        if message.get("id") == 2:
            answered.set()

    async def messages() -> AsyncIterator[bytes]:
        yield json.dumps({"id": 1, "method": "initialize"}).encode()
        yield b"{"
        yield json.dumps({"id": 2, "method": "ping"}).encode()
        async with asyncio.timeout(WAIT_SECONDS):
            await answered.wait()

    await Relay(cast(Any, SimpleNamespace(mcp=served)), write).run(messages())
    assert [each["error"]["code"] for each in written if "error" in each] == [-32700]
    assert written[-1] == {"id": 2, "result": {"begun": 2}}


class Restarted:
    """A session whose first conversation ends when the control plane restarts."""

    def __init__(self) -> None:
        self.begun = 0
        self.lost = False
        self.asked: list[tuple[int, str, Any]] = []

    async def initialize(self, message: dict[str, Any]) -> dict[str, Any]:
        self.begun += 1
        return {"id": message["id"], "result": {}}

    async def request(self, message: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        if self.lost and self.begun == 1:
            raise NotFoundError(404, {"code": "not_found"})
        self.asked.append((self.begun, message["method"], message.get("params")))
        yield {"id": message["id"], "result": {}}


async def test_what_the_client_wants_to_be_told_is_asked_for_again() -> None:
    served, written = Restarted(), list[dict[str, Any]]()
    changed = asyncio.Event()

    async def write(message: dict[str, Any]) -> None:
        written.append(message)
        changed.set()

    async def answered(count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(written) < count:
                changed.clear()
                await changed.wait()

    requests = [
        ("logging/setLevel", {"level": "info"}),
        ("logging/setLevel", {"level": "error"}),
        ("resources/subscribe", {"uri": "paddock://a"}),
        ("resources/subscribe", {"uri": "paddock://b"}),
        ("resources/unsubscribe", {"uri": "paddock://a"}),
    ]

    async def messages() -> AsyncIterator[bytes]:
        yield json.dumps({"id": 0, "method": "initialize"}).encode()
        for number, (method, params) in enumerate(requests, start=1):
            yield json.dumps({"id": number, "method": method, "params": params}).encode()
            await answered(number + 1)
        served.lost = True
        yield json.dumps({"id": 9, "method": "ping"}).encode()
        await answered(len(requests) + 2)

    await Relay(cast(Any, SimpleNamespace(mcp=served)), write).run(messages())
    assert [each[1:] for each in served.asked if each[0] == 2] == [
        requests[1],
        requests[3],
        ("ping", None),
    ]
    # The client gets each answer once.
    assert [each["id"] for each in written] == [0, 1, 2, 3, 4, 5, 9]
