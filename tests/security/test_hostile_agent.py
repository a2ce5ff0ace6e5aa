"""A sandbox agent that was taken over: only valid messages are accepted."""

import asyncio
import json
import logging
import os
import struct
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.errors import (
    AuditUnavailableError,
    NotFoundError,
    PaddockError,
    SandboxUnavailableError,
    TooLargeError,
)
from orchestrator.ground.fair_share import FairShare
from orchestrator.host.link import connection as connections
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.link.connection import Connection
from orchestrator.host.link.frames import Bounds, parse_frame
from orchestrator.host.link.messages import AgentEvent, Hello
from orchestrator.host.node.sockets import listening
from sandbox_agent.decide.frames import FrameDecoder, encode, notification, request, result
from sandbox_agent.decide.protocol import MAX_FRAME_BYTES, PROTOCOL_VERSION, SOCKET_NAME, Message
from tests.support.attempts import attempt

BOOT_ID = "0123456789abcdef"
PATIENCE = 60.0


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Impostor:
    """A program at the agent's end of a link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._received: list[Message] = []

    async def raw(self, data: bytes) -> None:
        """Sends raw bytes, even if the link has already closed the connection."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            return

    async def send(self, *messages: Message) -> None:
        await self.raw(b"".join(encode(message) for message in messages))

    async def receive(self) -> Message:
        """The next message. Raises: EOFError if the link has closed the connection."""
        async with asyncio.timeout(PATIENCE):
            while not self._received:
                try:
                    data = await self._reader.read(65536)
                except ConnectionError:
                    data = b""
                if not data:
                    raise EOFError
                self._received += self._decoder.feed(data)
        return self._received.pop(0)

    async def hung_up_on(self) -> bool:
        """Waits until the link ends the connection."""
        try:
            while True:
                await self.receive()
        except EOFError:
            return True

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return


class Host:
    """A link, and everything that it accepted."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.events: list[AgentEvent] = []
        self.hellos: list[Hello] = []
        self.violations: list[str] = []
        self.share = FairShare()
        self.link = AgentLink(
            partial(listening, run_dir),
            self._committed,
            self._on_event,
            self.hellos.append,
            self._on_violation,
            self.share,
        )
        self.failures = 0
        # Events are recorded only while this is set.
        self.disk = asyncio.Event()
        self.disk.set()
        self._impostors: list[Impostor] = []

    async def _committed(self, boot_id: str) -> int:
        known = {event.seq for event in self.events if event.boot_id == boot_id}
        return next(number for number in range(len(known) + 1) if number + 1 not in known)

    async def _on_event(self, event: AgentEvent) -> None:
        await self.disk.wait()
        if self.failures:
            self.failures -= 1
            raise AuditUnavailableError("no room")
        self.events.append(event)

    async def _on_violation(self, reason: str) -> None:
        self.violations.append(reason)

    async def dial(self) -> Impostor:
        impostor = Impostor(*await asyncio.open_unix_connection(str(self.run_dir / SOCKET_NAME)))
        self._impostors.append(impostor)
        return impostor

    async def greeted(self, boot_id: str = BOOT_ID) -> Impostor:
        """A connection that the link has accepted as its agent."""
        impostor = await self.dial()
        await impostor.send(hello(boot_id=boot_id))
        answer = await impostor.receive()
        assert "result" in answer
        return impostor

    async def close(self) -> None:
        for impostor in self._impostors:
            await impostor.close()
        await self.link.close()

    async def still_works(self) -> None:
        """Checks that the link still serves a well-behaved agent."""
        agent = await self.greeted("f" * 16)
        before = len(self.events)
        asking = asyncio.create_task(self.link.request("stats", {}))
        asked = await agent.receive()
        await agent.send(event(boot_id="f" * 16, seq=1), result(asked["id"], {"fine": True}))
        assert await asking == {"fine": True}
        await self.link.settled()
        assert len(self.events) == before + 1


@pytest.fixture
async def host(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Host]:
    """A link; at the end, no unexpected failure may have been logged."""
    with tempfile.TemporaryDirectory(prefix="pdk-") as directory:
        host = Host(Path(directory))
        await host.link.listen()
        yield host
        await host.close()
        assert os.listdir(directory) == [SOCKET_NAME]
    logged = [*caplog.get_records("call"), *caplog.records]
    assert [record for record in logged if record.levelno >= logging.WARNING] == []


def hello(**members: Any) -> Message:
    params = {
        "protocol": PROTOCOL_VERSION,
        "boot_id": BOOT_ID,
        "running": [],
        "finished": [],
        "terminals": [],
        "configured": True,
        "landlock_abi": 6,
        **members,
    }
    return request(0, "hello", params)


def event(**members: Any) -> Message:
    params = {
        "boot_id": BOOT_ID,
        "seq": 1,
        "operation": "file.read",
        "decision": "allow",
        "rule": None,
        "command_id": None,
        "args": {},
        "result": None,
        "error": None,
        "duration_ms": 0,
        **members,
    }
    return notification("event", params)


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


# Before an agent is accepted

GARBAGE = {
    "noise": b"\xff\x00\x17GET / HTTP/1.1\r\n\r\n",
    "a frame of 4 GiB": struct.pack(">I", 2**32 - 1),
    "a frame that is too long": struct.pack(">I", MAX_FRAME_BYTES + 1) + b"{",
    "an empty frame": frame(b""),
    "no JSON": frame(b"{"),
    "no object": frame(b"[1]"),
    "no JSON-RPC": frame(b"{}"),
    "not UTF-8": frame(b'{"jsonrpc":"2.0","method":"\xff"}'),
    "deep JSON": frame(b"[" * 200_000),
    "deep JSON in an object": frame(b'{"jsonrpc":"2.0","params":' + b'{"a":' * 100_000),
    "a huge number": frame(b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b"}"),
}


@attempt("an agent that has been taken over: it sends garbage", layer="control plane")
@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("accepted", [False, True])
async def test_garbage_ends_the_connection_only(host: Host, name: str, accepted: bool) -> None:
    impostor = await (host.greeted() if accepted else host.dial())
    await impostor.raw(GARBAGE[name])
    assert await impostor.hung_up_on()
    assert host.events == []
    await host.still_works()


async def test_half_a_frame_holds_up_nobody(host: Host) -> None:
    impostor = await host.dial()
    await impostor.raw(struct.pack(">I", MAX_FRAME_BYTES) + b"{" * 1000)
    await host.still_works()


@pytest.mark.parametrize("version", [0, 1, 2, PROTOCOL_VERSION + 1, "3", None, 3.5, [3], 10**30])
async def test_another_protocol_is_refused_with_what_to_do(host: Host, version: Any) -> None:
    impostor = await host.dial()
    await impostor.send(hello(protocol=version))
    answer = await impostor.receive()
    assert "another version started the sandbox" in answer["error"]["message"]
    assert await impostor.hung_up_on()
    with pytest.raises(SandboxUnavailableError, match="speaks protocol"):
        await host.link.wait_connected(PATIENCE)
    assert host.hellos == []


@attempt("… it sends a malformed hello", layer="control plane")
@pytest.mark.parametrize(
    "members",
    [
        {"boot_id": "x"},
        {"boot_id": 7},
        {"boot_id": BOOT_ID.upper() + "\n"},
        {"boot_id": None},
        {"running": "all"},
        {"running": [1]},
        {"running": ["x" * 65]},
        {"running": ["../etc"]},
        {"running": ["a"] * 257},
        {"finished": {}},
        {"terminals": {}},
        {"terminals": ["-" * 65]},
        {"landlock_abi": -1},
        {"configured": None},
        {"configured": 1},
        {"landlock_abi": True},
        {"landlock_abi": "6"},
        {"seccomp": 1},
        {"seccomp": None},
        {"undisturbed": 1},
        {"mdwe": "yes"},
        {"compiled_guard": 1},
    ],
)
async def test_a_hello_of_the_wrong_form_is_refused(host: Host, members: dict[str, Any]) -> None:
    impostor = await host.dial()
    await impostor.send(hello(**members))
    assert await impostor.hung_up_on()
    assert host.hellos == []
    assert not host.link.connected
    await host.still_works()


@pytest.mark.parametrize("params", [None, [], "x", 1])
async def test_a_hello_without_members_is_refused(host: Host, params: Any) -> None:
    impostor = await host.dial()
    await impostor.send({**hello(), "params": params})
    assert await impostor.hung_up_on()
    assert host.hellos == []


async def test_an_agent_that_knows_no_session_is_not_taken_for_one_that_does(host: Host) -> None:
    """Another program in the sandbox has taken the agent's place, or the agent was restarted."""
    host.link.expect_configured()
    impostor = await host.dial()
    await impostor.send(hello(configured=False))
    answer = await impostor.receive()
    assert "never configured" in answer["error"]["message"]
    assert await impostor.hung_up_on()
    assert host.hellos == []
    assert not host.link.connected
    with pytest.raises(SandboxUnavailableError, match="never configured"):
        await host.link.request("stats", {})
    await host.still_works()


async def test_nothing_is_heard_before_hello(host: Host) -> None:
    for first in (event(), result(1, {}), request(1, "exec", {}), notification("ack", {})):
        impostor = await host.dial()
        await impostor.send(first)
        assert await impostor.hung_up_on()
    for second in (event(), hello()):
        impostor = await host.dial()
        await impostor.send(hello(), second)
        # The second message is not accepted, whether or not the first was already answered.
        assert await impostor.hung_up_on()
    assert host.events == []
    assert not host.link.connected
    await host.still_works()


# After an agent is accepted

BAD_EVENTS: dict[str, dict[str, Any]] = {
    "an operation of the control plane": {"operation": "session.create"},
    "an operation nobody knows": {"operation": "world.end"},
    "an operation that is no text": {"operation": ["file.read"]},
    "another boot id": {"boot_id": "f" * 16},
    "no boot id": {"boot_id": None},
    "a gap": {"seq": 2},
    "a number far ahead": {"seq": 2**52},
    "a number out of range": {"seq": 2**53},
    "zero": {"seq": 0},
    "a fraction": {"seq": 1.0},
    "true": {"seq": True},
    "a decision": {"decision": "maybe"},
    "args": {"args": "all"},
    "a result": {"result": [1]},
    "a rule": {"rule": 5},
    "an error": {"error": {"x": 1}},
    "a command id": {"command_id": "../../x"},
    "a duration": {"duration_ms": -1},
    "a long text": {"error": "x" * 20_000},
    "a long argument": {"args": {"path": "x" * 20_000}},
    "a long name": {"args": {"x" * 20_000: 1}},
    "many arguments": {"args": {str(number): number for number in range(100)}},
    "nested arguments": {"args": {"path": {"path": {}}}},
    "a list as a result": {"result": {"entries": [1, 2, 3]}},
    "an endless duration": {"duration_ms": 1e300},
    "an infinite number": {"args": {"bytes": float("inf")}},
    "a number of many digits": {"args": {"bytes": 10**300}},
    "no number": {"args": {"bytes": float("nan")}},
    "a negative exit code": {"operation": "command.exit", "result": {"exit_code": -1}},
    "a large exit code": {"operation": "command.exit", "result": {"exit_code": 256}},
    "an exit code that is a text": {"operation": "pty.exit", "result": {"exit_code": "0"}},
    "a negative count": {"operation": "command.exit", "result": {"output_bytes": -(10**300)}},
    "a count that is true": {"operation": "command.exit", "result": {"cut_bytes": True}},
    "more than an event has": {"args": {str(n): "x" * 16_000 for n in range(10)}},
}


@attempt("… it reports malformed events", layer="control plane")
@pytest.mark.parametrize("name", BAD_EVENTS)
async def test_an_event_of_the_wrong_form_is_not_recorded(host: Host, name: str) -> None:
    impostor = await host.greeted()
    await impostor.send(event(**BAD_EVENTS[name]))
    assert await impostor.hung_up_on()
    assert host.events == []
    await host.still_works()


@pytest.mark.parametrize("params", [None, [], "x", {}])
async def test_an_event_without_members_is_not_recorded(host: Host, params: Any) -> None:
    impostor = await host.greeted()
    await impostor.send({"jsonrpc": "2.0", "method": "event", "params": params})
    assert await impostor.hung_up_on()
    assert host.events == []


@attempt("… it gives orders", layer="control plane")
@pytest.mark.parametrize("method", ["exec", "ack", "hello", "", None, 5, ["event"], {"a": 1}])
async def test_an_agent_gives_no_orders(host: Host, method: Any) -> None:
    impostor = await host.greeted()
    await impostor.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})
    assert await impostor.hung_up_on()
    await host.still_works()


async def test_repetitions_on_the_next_connection_are_recorded_once(host: Host) -> None:
    impostor = await host.greeted()
    await impostor.send(event(seq=1), event(seq=2))
    while (await impostor.receive())["params"]["seq"] < 2:
        pass
    again = await host.greeted()
    await again.send(event(seq=3))
    assert (await again.receive())["params"]["seq"] == 3
    assert [known.seq for known in host.events] == [1, 2, 3]
    assert host.violations == []


async def test_who_waits_for_the_record_and_gives_up_ends_no_recording(host: Host) -> None:
    """A client that disconnects cancels only its own request."""
    host.disk.clear()
    agent = await host.greeted()
    asking = asyncio.create_task(host.link.request("stats", {}))
    asked = await agent.receive()
    await agent.send(event(seq=1), event(seq=2), result(asked["id"], {}))
    await asking
    hasty, patient = (asyncio.create_task(host.link.settled()) for _ in range(2))
    await asyncio.sleep(0)
    hasty.cancel()
    await asyncio.wait([hasty])
    host.disk.set()
    await patient
    assert [known.seq for known in host.events] == [1, 2]
    while (await agent.receive())["params"]["seq"] < 2:
        pass


@attempt("… it repeats events", layer="control plane")
async def test_the_first_repetition_ends_the_connection(host: Host) -> None:
    impostor = await host.greeted()
    await impostor.send(event(seq=1), event(seq=2), *(event(seq=1) for _ in range(10_000)))
    assert await impostor.hung_up_on()
    await host.link.settled()
    assert [known.seq for known in host.events] == [1, 2]
    assert host.violations == ["event 1 after event 2"]


@attempt("… it answers requests that were never made", layer="control plane")
@pytest.mark.parametrize("request_id", [None, "1", 10**30, -1, [1], {"a": 1}, 1.5, True, 1])
async def test_the_first_answer_that_nobody_waits_for_ends_the_connection(
    host: Host, request_id: Any
) -> None:
    impostor = await host.greeted()
    await impostor.send(*({"jsonrpc": "2.0", "id": request_id, "result": {}} for _ in range(1000)))
    assert await impostor.hung_up_on()
    await host.still_works()
    assert host.violations == ["an answer without a request"]


@pytest.mark.parametrize("answer", [{"jsonrpc": "2.0", "result": {}}, {"jsonrpc": "2.0"}])
async def test_a_message_that_is_neither_ends_the_connection(host: Host, answer: Any) -> None:
    impostor = await host.greeted()
    await impostor.send(answer)
    assert await impostor.hung_up_on()
    await host.still_works()


async def test_a_second_answer_ends_the_connection(host: Host) -> None:
    impostor = await host.greeted()
    asking = asyncio.create_task(host.link.request("stats", {}))
    asked = await impostor.receive()
    await impostor.send(result(asked["id"], {"once": 1}), result(asked["id"], {"twice": 1}))
    assert await asking == {"once": 1}
    assert await impostor.hung_up_on()
    await host.still_works()


async def test_an_answer_that_comes_too_late_is_no_violation(host: Host) -> None:
    impostor = await host.greeted()
    with pytest.raises(SandboxUnavailableError, match="did not answer stats"):
        await host.link.request("stats", {}, 0.01)
    late = await impostor.receive()
    asking = asyncio.create_task(host.link.request("stats", {}))
    asked = await impostor.receive()
    await impostor.send(result(late["id"], {"late": 1}), result(asked["id"], {"right": 1}))
    assert await asking == {"right": 1}
    # An abandoned request may be answered once; a second answer is a violation.
    await impostor.send(result(late["id"], {"late": 1}))
    assert await impostor.hung_up_on()
    assert len(host.violations) == 1


async def test_an_agent_that_answers_nothing_is_dropped(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.host.link.connection._MOST_GIVEN_UP", 3)
    impostor = await host.greeted()
    for _ in range(4):
        with pytest.raises(SandboxUnavailableError):
            await host.link.request("stats", {}, 0.001)
    assert await impostor.hung_up_on()
    assert host.violations == []


async def test_who_breaks_the_protocol_again_and_again_is_not_heard_any_more(host: Host) -> None:
    for _ in range(16):
        impostor = await host.greeted()
        await impostor.send(result(5, {}))
        assert await impostor.hung_up_on()
    with pytest.raises(SandboxUnavailableError, match="broke the protocol too often"):
        await host.link.request("stats", {})
    with pytest.raises(ConnectionRefusedError):
        await host.dial()
    assert len(host.violations) == 16


STRUCTURES = {
    "arrays": b"[" + b"[]," * 100_000 + b"[]]",
    "objects": b"[" + b"{}," * 100_000 + b"{}]",
    "numbers": b"[" + b"1," * 100_000 + b"1]",
    "members": b"{" + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}",
    "texts": b"[" + b'"\\",' * 100_000 + b'""]',
    "a text without an end": b'["' + b'\\"' * 1_000_000,
    "values after a text": b'["' + b"," * 100_000 + b'"' + b",[]" * 100_000 + b"]",
}


@attempt("… it sends messages that are slow to parse", layer="control plane")
@pytest.mark.parametrize("name", STRUCTURES)
async def test_a_frame_of_many_values_is_not_read(host: Host, name: str) -> None:
    impostor = await host.greeted()
    asking = asyncio.create_task(host.link.request("file.list", {}))
    asked = await impostor.receive()
    head = b'{"jsonrpc":"2.0","id":%d,"result":' % asked["id"]
    await impostor.raw(frame(head + STRUCTURES[name] + b"}"))
    with pytest.raises(SandboxUnavailableError, match="disconnected"):
        await asking
    await host.still_works()


async def test_a_long_text_of_commas_is_read(host: Host) -> None:
    impostor = await host.greeted()
    asking = asyncio.create_task(host.link.request("file.list", {}))
    asked = await impostor.receive()
    value = {"path": '",[{\\' * 100_000}
    await impostor.send(result(asked["id"], value))
    assert await asking == value


@attempt("… it sends more than it was asked for", layer="control plane")
@pytest.mark.parametrize(
    ("asked", "size"), [(None, 200_000), ("stats", 200_000), ("output", 900_000)]
)
async def test_a_frame_is_as_large_as_what_it_may_be(
    host: Host, asked: str | None, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that is too large is refused at once, and none of it is parsed."""
    read: list[int] = []
    parse = parse_frame

    def counted(body: bytes, allowed: Bounds) -> Message:
        read.append(len(body))
        return parse(body, allowed)

    monkeypatch.setattr(connections, "parse_frame", counted)
    impostor = await host.greeted()
    asking = asyncio.create_task(host.link.request(asked, {})) if asked else None
    if asking is not None:
        await impostor.receive()
    await impostor.raw(struct.pack(">I", size) + b"{")
    assert await impostor.hung_up_on()
    if asking is not None:
        with pytest.raises(SandboxUnavailableError, match="disconnected"):
            await asking
    assert len(host.violations) == 1
    assert sum(read) < 1000
    await host.still_works()


@attempt("… its hello is very large", layer="control plane")
@pytest.mark.parametrize(
    "members",
    [
        {"junk": 1},
        {"junk": "x" * 300_000},
        {"landlock_abi": 6, "configured": True, "running": ["x" * 64] * 256, "": []},
        {"secrets": {"variables": {}, "given": []}, "terminals": ["é" * 40_000]},
        {"secrets": {"variables": {}, "given": [["x", "0" * 64]] * 5000}},
    ],
)
async def test_a_hello_has_what_hellos_have(host: Host, members: dict[str, Any]) -> None:
    impostor = await host.dial()
    await impostor.send(hello(**members))
    assert await impostor.hung_up_on()
    assert len(host.violations) == 1
    await host.still_works()


async def test_a_hello_may_be_as_large_as_its_secrets(host: Host) -> None:
    given = [["\0" * 32_000, "0" * 64], ["\1" * 32_000, "0" * 64]]
    impostor = await host.dial()
    await impostor.send(hello(secrets={"variables": {}, "given": given}, running=["x" * 64] * 256))
    assert "result" in await impostor.receive()


async def test_what_events_and_hellos_cost_is_owed_by_whoever_dials_next(host: Host) -> None:
    """The time of recording is measured, and charged to the link, not to the connection."""
    clock = Clock()
    host.share._clock = clock
    took_time, record = asyncio.Event(), host.link._on_event

    async def costly(known: AgentEvent) -> None:
        host.link.spend(5.0)  # stands in for the measurement, which the tests of Metered cover
        await record(known)
        took_time.set()

    host.link._on_event = costly
    first = await host.greeted()
    await first.send(event(seq=1))
    await took_time.wait()
    taken: list[Message] = []
    receive = Connection._receive

    def counted(connection: Connection, message: Message, size: int) -> None:
        taken.append(message)
        receive(connection, message, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "_receive", counted)
        second = await host.dial()
        waiting = asyncio.Event()
        wait = Connection._wait
        timers: list[float] = []

        def waited(connection: Connection, seconds: float) -> None:
            wait(connection, seconds)
            timers.append(seconds)
            waiting.set()

        patch.setattr(Connection, "_wait", waited)
        await second.send(hello())
        async with asyncio.timeout(PATIENCE):
            await waiting.wait()
        assert taken == []
        assert timers[0] > 9
    # The timer would run for nearly ten seconds; the test skips them.
    clock.now += 60
    for connection in list(host.link._open):
        if connection._next_portion is not None:
            connection._next_portion.cancel()
            connection._handle_portion()
    assert "result" in await second.receive()


@attempt("… it keeps the control plane busy", layer="control plane")
async def test_a_flood_waits_for_its_share_of_the_time(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox that needs little time does not wait for one that needs much."""
    waits: dict[object, list[float]] = {}
    charged: dict[object, float] = {}
    spend = host.share.spend

    def spent(member: object, seconds: float) -> float:
        wait = spend(member, seconds)
        charged[member] = charged.get(member, 0.0) + seconds
        waits.setdefault(member, []).append(wait)
        return wait

    waited: list[float] = []
    wait_for_turn = Connection._wait

    def waiting(connection: Connection, seconds: float) -> None:
        waited.append(seconds)
        wait_for_turn(connection, seconds)

    monkeypatch.setattr(Connection, "_wait", waiting)
    monkeypatch.setattr(host.share, "spend", spent)
    with tempfile.TemporaryDirectory(prefix="pdk-") as directory:
        neighbour = Host(Path(directory))
        neighbour.link._share = host.share
        await neighbour.link.listen()
        impostor = await host.greeted()
        flood = asyncio.create_task(
            impostor.send(*(event(seq=number, error="x" * 1000) for number in range(1, 3001)))
        )
        await neighbour.still_works()
        await flood
        while (await impostor.receive())["params"]["seq"] < 3000:
            pass
        await neighbour.close()
    assert max(waits[host.link]) > 0
    assert max(waits[neighbour.link]) == 0
    # The flood was charged for the ledger thread's work, and for the measured time in addition.
    assert charged[host.link] > 3000 * connections._EVENT_SECONDS
    # The flood was not read while it waited for the time that it had used.
    assert sum(waited) > 0


@attempt("… it sends malformed answers", layer="control plane")
@pytest.mark.parametrize(
    "answer",
    [
        {"result": None},
        {"result": [1]},
        {"result": "x"},
        {},
        {"error": None},
        {"error": "x"},
        {"error": {}},
        {"error": {"data": []}},
        {"error": {"data": {"code": ["x"]}, "message": {"a": 1}}},
        {"error": {"data": {"code": "internal_error"}, "message": "x" * 100_000}},
    ],
)
async def test_an_answer_of_the_wrong_form_fails_the_request(host: Host, answer: Any) -> None:
    impostor = await host.greeted()
    asking = asyncio.create_task(host.link.request("stats", {}))
    asked = await impostor.receive()
    await impostor.send({"jsonrpc": "2.0", "id": asked["id"], **answer})
    with pytest.raises(SandboxUnavailableError) as failed:
        await asking
    assert len(failed.value.detail) < 4096
    await host.still_works()


async def test_an_agent_cannot_claim_any_error_it_likes(host: Host) -> None:
    impostor = await host.greeted()
    codes = {"not_found": NotFoundError, "unauthorized": SandboxUnavailableError}
    for code, expected in codes.items():
        asking = asyncio.create_task(host.link.request("stats", {}))
        asked = await impostor.receive()
        error = {"message": "x", "data": {"code": code, "rule": {"not": "text"}}}
        await impostor.send({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        with pytest.raises(expected) as failed:
            await asking
        assert "rule" not in failed.value.fields


async def test_silence_ends_by_a_timeout(host: Host) -> None:
    await host.greeted()
    with pytest.raises(SandboxUnavailableError, match="did not answer stats"):
        await host.link.request("stats", {}, 0.05)
    await host.still_works()


async def test_whoever_comes_later_is_the_agent(host: Host) -> None:
    first = await host.greeted()
    asking = asyncio.create_task(host.link.request("stats", {}))
    asked = await first.receive()
    second = await host.greeted()
    assert await first.hung_up_on()
    with pytest.raises(SandboxUnavailableError, match="disconnected"):
        await asking
    asking = asyncio.create_task(host.link.request("stats", {}))
    asked = await second.receive()
    await second.send(result(asked["id"], {"fresh": True}))
    assert await asking == {"fresh": True}
    await host.still_works()


async def test_only_what_is_durable_is_acknowledged(host: Host) -> None:
    """The second event is recorded before the first, so neither is acknowledged yet."""
    first, record = asyncio.Event(), host.link._on_event

    async def late_first(known: AgentEvent) -> None:
        if known.seq == 1:
            await first.wait()
        await record(known)

    host.link._on_event = late_first
    impostor = await host.greeted()
    await impostor.send(event(seq=1), event(seq=2))
    asking = asyncio.create_task(host.link.request("stats", {}))
    asked = await impostor.receive()
    # An acknowledgement would have come before this request.
    assert asked["method"] == "stats"
    await impostor.send(result(asked["id"], {}))
    await asking
    assert [known.seq for known in host.events] == [2]
    first.set()
    assert (await impostor.receive())["params"]["seq"] == 2


async def test_a_flood_of_events_is_recorded_in_order(host: Host) -> None:
    impostor = await host.greeted()
    await impostor.send(*(event(seq=number) for number in range(1, 2001)))
    while (await impostor.receive())["params"]["seq"] < 2000:
        pass
    assert [known.seq for known in host.events] == list(range(1, 2001))


async def test_an_agent_that_does_not_read_is_dropped(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.host.link.agent_link._RECONNECT_SECONDS", 0.1)
    impostor = await host.greeted()
    waiting = [asyncio.create_task(host.link.request("file.push", {"data": "x" * MAX_FRAME_BYTES}))]
    with pytest.raises(TooLargeError):
        await waiting.pop()
    for _ in range(12):
        params = {"data": "x" * (MAX_FRAME_BYTES - 1000)}
        waiting.append(asyncio.create_task(host.link.request("file.push", params)))
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in done} == {SandboxUnavailableError}
    await impostor.close()
    await host.still_works()


async def test_an_event_that_cannot_be_recorded_drops_the_connection(host: Host) -> None:
    host.failures = 1
    impostor = await host.greeted()
    await impostor.send(event(seq=1), event(seq=2))
    assert await impostor.hung_up_on()
    again = await host.greeted()
    await again.send(event(seq=1), event(seq=2))
    while (await again.receive())["params"]["seq"] < 2:
        pass
    recorded = sorted({known.seq for known in host.events})
    assert recorded == [1, 2]


@attempt("… it floods the ledger", layer="control plane")
@pytest.mark.parametrize(("count", "size"), [(5000, 1000), (1000, 60_000)])
async def test_a_flood_that_cannot_be_recorded_is_not_read(
    host: Host, count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of many or large events are held in memory, and fewer wait in the ledger."""
    monkeypatch.setattr(host.share, "spend", lambda _member, _seconds: 0.0)
    go_on, paused, record = asyncio.Event(), asyncio.Event(), host.link._on_event
    waiting = 0

    async def stalled(known: AgentEvent) -> None:
        nonlocal waiting
        waiting += 1
        await go_on.wait()
        waiting -= 1
        await record(known)

    pause = Connection.pause

    def pausing(connection: Connection) -> None:
        pause(connection)
        paused.set()

    monkeypatch.setattr(Connection, "pause", pausing)
    host.link._on_event = stalled
    impostor = await host.greeted()
    members = {"args": {str(number): "x" * (size // 4) for number in range(4)}}
    flood = asyncio.create_task(
        impostor.send(*(event(seq=number, **members) for number in range(1, count + 1)))
    )
    async with asyncio.timeout(PATIENCE):
        await paused.wait()
    assert len(host.link._recording) <= 2048
    assert host.link._recording_bytes <= 16 * 1024 * 1024 + size * 2
    assert waiting == 128
    assert not flood.done()
    go_on.set()
    await flood
    while (await impostor.receive())["params"]["seq"] < count:
        pass
    assert [known.seq for known in host.events] == list(range(1, count + 1))


@attempt("… it opens many connections", layer="control plane")
async def test_many_connections_at_once(host: Host) -> None:
    """Many other connections send nothing; the accepted agent is still served."""
    agent = await host.greeted()
    silent = [await host.dial() for _ in range(20)]
    assert await silent[0].hung_up_on()
    assert len(host.link._open) <= 8
    asking = asyncio.create_task(host.link.request("stats", {}))
    asked = await agent.receive()
    await agent.send(result(asked["id"], {}))
    await asking
    await host.still_works()


class Broken:
    """Raises an unexpected exception once."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._failed = False

    def __call__(self, *args: Any) -> Any:
        if not self._failed:
            self._failed = True
            raise ZeroDivisionError("of no concern to an agent")
        return self._work(*args)


@pytest.mark.parametrize("place", ["_on_event", "_on_hello", "_committed", "start_recording"])
async def test_an_unexpected_failure_drops_the_connection(
    host: Host, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent reconnects and repeats unrecorded events, so nothing waits for ever."""
    monkeypatch.setattr(host.link, place, Broken(getattr(host.link, place)))
    impostor = await host.dial()
    await impostor.send(hello())
    if place in ("_on_event", "start_recording"):
        await impostor.receive()
        await impostor.send(event(seq=1), event(seq=2))
    assert await impostor.hung_up_on()
    again = await host.greeted()
    await again.send(event(seq=1), event(seq=2))
    while (await again.receive())["params"]["seq"] < 2:
        pass
    assert {known.seq for known in host.events} == {1, 2}
    (logged,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged.exc_info is not None
    assert host.violations == []
    caplog.clear()


async def test_waiting_for_an_agent_that_never_comes(host: Host) -> None:
    await host.dial()
    with pytest.raises(SandboxUnavailableError, match="did not connect in time"):
        await host.link.wait_connected(0.05)


async def test_closing_ends_what_waits(host: Host) -> None:
    await host.greeted()
    asking = asyncio.create_task(host.link.request("stats", {}))
    await asyncio.wait([asking], timeout=0.01)
    await host.link.close()
    with pytest.raises(PaddockError):
        await asking


async def test_texts_that_no_ledger_can_hold(host: Host) -> None:
    """The link checks only their form, so they pass; the ledger's tests cover their fate."""
    impostor = await host.greeted()
    body = json.dumps(event(error="\ud800", args={"x": "\udfff"}))
    await impostor.raw(frame(body.encode()))
    assert (await impostor.receive())["params"]["seq"] == 1
    assert host.events[0].error == "\ud800"
