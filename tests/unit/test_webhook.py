"""The webhook: signed, retried, bounded, and never waited for."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from orchestrator.ground.tasks import Tasks
from orchestrator.work.approvals import webhook
from orchestrator.work.approvals.webhook import Webhook
from tests.support.limits import WAIT_SECONDS

SECRET = "the-secret-of-the-tests"
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass
class Request:
    """A request that the receiver got."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """A server that sends the given answers, then OK to every request."""

    url: str = ""
    answers: list[bytes | None] = field(default_factory=list)  # None: closes without an answer
    requests: "asyncio.Queue[Request]" = field(default_factory=asyncio.Queue)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = dict(each.split(": ", 1) for each in rest)
        body = await reader.readexactly(int(headers["Content-Length"]))
        answer = self.answers.pop(0) if self.answers else OK
        if answer is not None:
            writer.write(answer)
        writer.close()
        await self.requests.put(Request(line, headers, body))

    async def next(self) -> Request:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.requests.get()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    receiver.url = f"http://127.0.0.1:{port}/hooks/paddock?team=a"
    yield receiver
    server.close()
    await server.wait_closed()


@pytest.fixture
async def hook(receiver: Receiver) -> AsyncIterator[Webhook]:
    hook = Webhook(receiver.url, SECRET, first_pause=0)
    hook.start(Tasks())
    yield hook
    await hook.close()


async def test_a_message_is_signed(hook: Webhook, receiver: Receiver) -> None:
    hook.send({"type": "approval.requested", "text": "caf\u00e9"})
    request = await receiver.next()
    assert request.line == "POST /hooks/paddock?team=a HTTP/1.1"
    assert json.loads(request.body) == {"type": "approval.requested", "text": "caf\u00e9"}
    assert request.headers["Content-Type"] == "application/json"
    signed = request.headers["Paddock-Timestamp"].encode() + b"." + request.body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert request.headers["Paddock-Signature"] == f"v1={expected}"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 Oops\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n",
        b"SSH-2.0-x y\r\n",
        b"x" * 5000,
        b"HTTP/1.1 abc\r\n",
        b"\r\n",
        None,
    ],
)
async def test_what_fails_is_tried_again(
    hook: Webhook, receiver: Receiver, answer: bytes | None
) -> None:
    receiver.answers = [answer, answer]
    hook.send({"number": 1})
    requests = [await receiver.next() for _ in range(3)]
    assert len({request.headers["Paddock-Delivery"] for request in requests}) == 1
    assert len({request.body for request in requests}) == 1
    hook.send({"number": 2})
    assert json.loads((await receiver.next()).body) == {"number": 2}


async def test_it_gives_up_and_goes_on(hook: Webhook, receiver: Receiver) -> None:
    receiver.answers = [None] * 5
    hook.send({"number": 1})
    hook.send({"number": 2})
    bodies = [json.loads((await receiver.next()).body) for _ in range(6)]
    assert bodies == [{"number": 1}] * 5 + [{"number": 2}]


async def test_a_receiver_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhook, "_TRY_SECONDS", 0.01)
    held = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hook = Webhook(f"http://127.0.0.1:{port}", SECRET, first_pause=0)
    await hook._deliver(b"{}")
    assert "try 5 of 5: TimeoutError" in caplog.text
    for writer in held:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_too_many_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    hook = Webhook("http://127.0.0.1:1", SECRET)  # not started, so nothing is sent
    for number in range(300):
        hook.send({"number": number})
    assert caplog.text.count("a message is dropped") == 300 - webhook._MOST_WAITING
    await hook.close()
