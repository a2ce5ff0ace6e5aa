"""Bodies that never become whole: what they hold, and who is served meanwhile."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from api.app import BOUNDS
from api.catalog import OPERATIONS
from api.http.body import Pace
from api.http.bounds import UNREAD_LIMITS
from orchestrator.ground.serving.connections import LEAST_WAITING
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.box import PATIENCE
from tests.support.fake_agent import Play
from tests.support.until import until

EXEC = "/api/sessions/web/exec"
MIB = 2**20


class Upload:
    """A request with a body that is sent piece by piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def answer(self) -> bytes:
        """The beginning of the answer."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read(4096)


@asynccontextmanager
async def upload(
    api: Api, key: str, length: int, path: str = EXEC, method: str = "POST"
) -> AsyncIterator[Upload]:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    try:
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
            f"Authorization: Bearer {key}\r\n\r\n".encode()
        )
        yield Upload(reader, writer)
    finally:
        writer.transport.abort()


@pytest.mark.slow
async def test_one_handle_holds_a_bounded_part(api: Api) -> None:
    made = await api.session(id="web", key=OPERATOR_KEY)
    await api.session(id="next", key=OTHER_KEY)
    api.agents.plays["ls"] = Play(stdout=b"README.md\n")
    unread = api.server.app[BOUNDS].unread
    async with AsyncExitStack() as stack:
        uploads = [
            await stack.enter_async_context(upload(api, made["handle"], 8 * MIB))
            for _ in range(120)
        ]
        for each in uploads:
            each.writer.write(b"x" * (7 * MIB))
        answers = [asyncio.create_task(each.answer()) for each in uploads]

        def most_are_refused() -> bool:
            assert unread.bytes[("all", "")] <= UNREAD_LIMITS.bytes[0]
            return sum(each.done() for each in answers) >= 110

        await until(most_are_refused)
        assert all(b" 429 " in each.result() for each in answers if each.done())
        # The key itself, and others, are served, and so is what stops the session.
        await api.json("GET", "/healthz", key=None)
        body = {"argv": ["ls"], "stdin": "x" * 100_000}
        await api.json("POST", "/api/sessions/next/exec", json=body, key=OTHER_KEY)
        await api.json("POST", EXEC, json=body, key=OPERATOR_KEY)
        await api.json("POST", "/api/sessions/web/abort", key=OPERATOR_KEY)
        for answer in answers:
            answer.cancel()
    await until(lambda: not unread.bytes and not unread.requests)


async def test_stops_are_served_when_nothing_more_may_arrive(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.session(id="web", key=OPERATOR_KEY)
    unread = api.server.app[BOUNDS].unread
    none = UNREAD_LIMITS._replace(requests=(0, 0, 0))
    monkeypatch.setattr(unread, "_limits", none)
    big: dict[str, Any] = {"argv": ["ls"], "stdin": "x" * 5000}
    problem = await api.problem(429, "rate_limited", "POST", EXEC, json=big, key=OPERATOR_KEY)
    assert problem["limit"] == "max_unread_requests"
    await api.json("GET", "/healthz", key=None)
    level = {"settings": {"permission_level": "low"}}
    await api.json("PUT", "/api/sessions/web/settings", json=level, key=OPERATOR_KEY)
    await api.json("POST", "/api/sessions/web/abort", key=OPERATOR_KEY)
    assert (await api.json("GET", "/api/sessions/web"))["status"] == "aborted"


async def test_a_slow_sender_is_ended(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that trickle in are never idle for long."""
    monkeypatch.setattr("api.http.body.BODY_PACE", Pace(1000, 0.2))
    await api.session(id="web")
    async with upload(api, ADMIN_KEY, 5000) as sender:

        async def trickle() -> None:
            while True:
                sender.writer.write(b"x")
                await asyncio.sleep(0.01)

        task = asyncio.create_task(trickle())
        answer = await sender.answer()
        task.cancel()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"arrives too slowly" in answer


async def test_each_operation_has_the_limit_that_it_states(api: Api) -> None:
    """One byte more is refused before it is sent."""
    await api.session(id="web")
    document = await api.json("GET", "/api/openapi.json", key=None)
    for operation in OPERATIONS:
        if operation.body is None:
            continue
        described = document["paths"][operation.path][operation.method.lower()]["requestBody"]
        (kib,) = map(int, re.findall(r"^At most (\d+) KiB\.$", described["description"]))
        path = re.sub(r"\{\w+\}", "web", operation.path)
        path = path.replace("/api/approvals/web", "/api/approvals/1")
        async with upload(api, ADMIN_KEY, kib * 1024 + 1, path, operation.method) as sender:
            answer = await sender.answer()
        assert b" 413 " in answer, (operation.id, answer)
        assert b"limit of this operation, %d bytes" % (kib * 1024) in answer, operation.id


async def test_an_unannounced_body_is_cut_at_the_limit(api: Api) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'{"reason": "'
        while True:
            yield b"x" * 100_000

    await api.problem(413, "too_large", "PUT", "/api/sessions/web/episode", data=body())


async def test_open_requests_of_a_caller_are_bounded(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await api.session(id="web", key=OPERATOR_KEY)
    api.agents.plays["tail"] = Play(holds=True)
    unread = api.server.app[BOUNDS].unread
    monkeypatch.setattr(unread, "_limits", UNREAD_LIMITS._replace(open=(1, 9, 9)))
    body = {"argv": ["tail", "-f", "log"]}
    running = asyncio.create_task(api.call("POST", EXEC, json=body, key=made["handle"]))
    await until(lambda: unread.open[("all", "")] == 1)
    problem = await api.problem(429, "rate_limited", "GET", "/api/sessions/web", key=made["handle"])
    assert problem["limit"] == "max_open_requests"
    # The key has its own, and what ends the session's commands is not counted.
    await api.json("GET", "/api/sessions/web", key=OPERATOR_KEY)
    await api.json("POST", "/api/sessions/web/interrupt", key=made["handle"])
    await running
    await until(lambda: not unread.open)


async def test_idle_connections_give_way(api: Api) -> None:
    """Any number of connections that bring no request keeps nobody out."""
    connections = api.server.app[BOUNDS].connections
    runner = api.server.runner
    assert runner is not None
    assert runner.server is not None
    connections.bound(runner.server, 10)
    await api.session(id="web")
    api.agents.plays["tail"] = Play(holds=True)
    body = {"argv": ["tail", "-f", "log"]}
    running = asyncio.create_task(api.call("POST", EXEC, json=body))
    session = api.plane.sessions.registry.get("web")
    assert session is not None
    await until(lambda: bool(session.running))
    async with AsyncExitStack() as stack:
        # Some are silent, some stop within a body.
        idle = [await stack.enter_async_context(upload(api, "x", 9)) for _ in range(3)]
        for _ in range(2 * LEAST_WAITING):
            idle.append(await stack.enter_async_context(upload(api, ADMIN_KEY, 3000)))
        await until(lambda: len(connections) <= LEAST_WAITING + 2)
        await api.json("GET", "/healthz", key=None)
        # The request that is served keeps its connection.
        assert not running.done()
        await api.json("POST", "/api/sessions/web/abort")
    assert (await running).status in (200, 410)
    await until(lambda: len(connections) <= 4)
